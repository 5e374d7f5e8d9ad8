"""The part of s3fs that reads a table, over a dictionary: a listing has pages, as on S3."""

from __future__ import annotations

from datetime import UTC, datetime

_PAGE_KEYS = 1000
WRITTEN = datetime(2026, 11, 21, tzinfo=UTC)


class PagedS3:
    """Objects by bucket and key; it counts its requests.

    :param knows_start: whether it knows ``StartAfter``.
    """

    protocol = ("s3", "s3a")

    def __init__(self, *, knows_start=True):
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.knows_start = knows_start

    def _strip_protocol(self, path):
        return path.partition("://")[2]

    def split_path(self, path):
        bucket, _, key = path.partition("/")
        return bucket, key, None

    def cat_file(self, path):
        self.requests.append(f"GET {path}")
        if path not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[path]

    def call_s3(self, method, **asked):
        assert method == "list_objects_v2"
        self.requests.append(f"LIST {asked}")
        prefix, bucket = asked["Prefix"], f"{asked['Bucket']}/"
        listed = set()
        for key in (path.removeprefix(bucket) for path in self.objects):
            if key.startswith(prefix):
                rest, below, _ = key.removeprefix(prefix).partition(asked["Delimiter"])
                listed.add(prefix + rest + below)
        after = asked.get("StartAfter", "") if self.knows_start else ""
        start = max(after, asked.get("ContinuationToken", ""))
        page = sorted(one for one in listed if one > start)
        truncated = len(page) > _PAGE_KEYS
        page = page[:_PAGE_KEYS]
        return {
            "Contents": [{"Key": k, "LastModified": WRITTEN} for k in page if not k.endswith("/")],
            "CommonPrefixes": [{"Prefix": key} for key in page if key.endswith("/")],
            "IsTruncated": truncated,
            "NextContinuationToken": page[-1] if page else "",
        }
