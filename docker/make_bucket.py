"""Make a bucket in the S3 store that the ``AWS_*`` variables name, unless it is there."""

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
