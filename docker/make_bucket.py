"""Create a bucket in the S3 store of the ``AWS_*`` variables, unless it exists."""

from __future__ import annotations

import sys

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

if __name__ == "__main__":
    s3 = boto3.client("s3", config=Config(s3={"addressing_style": "path"}))
    try:
        s3.create_bucket(Bucket=sys.argv[1])
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("BucketAlreadyExists", "BucketAlreadyOwnedByYou"):
            raise
