"""What a job run of EMR Serverless runs in the contract suite: a shell script, reported to S3.

It ends with the process that started it, as the shipped runner does.
"""

from __future__ import annotations

import subprocess
import sys

import boto3

from tests.contract.livy_job import die_with_parent, fact

if __name__ == "__main__":
    die_with_parent()
    bucket, key, script, endpoint = sys.argv[1:]
    keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=endpoint, **keys)
    content = fact(fact="protected", followed=True)

    def add(lines: bytes) -> None:
        global content  # noqa: PLW0603
        content += lines
        client.put_object(Bucket=bucket, Key=key, Body=content)

    add(b"")
    with subprocess.Popen(
        ["sh", "-c", script],
        stdout=subprocess.PIPE,
        preexec_fn=die_with_parent,  # noqa: PLW1509
    ) as running:
        assert running.stdout
        for line in running.stdout:
            add(line)
    add(fact(fact="end", exit_code=running.returncode))
    sys.exit(running.returncode)
