"""What only a bucket with a great deal in it shows; S3 servers of tests answer everything at once."""

from datetime import UTC, datetime

from botocore.stub import Stubber

from experiments import s3_stores


def test_the_newest_upload_in_parts_is_found_among_many() -> None:
    section = {
        "type": "s3",
        "bucket": "b",
        "access_key": "a",
        "secret_key": "s",
        "endpoint_url": "http://127.0.0.1:9",
    }
    account = s3_stores.account_of(section)
    assert account
    store = s3_stores.S3Store(account, "11111111-2222-3333-4444-555555555555")
    key = f"{store._base}model.pt"
    first, second = (
        {"Key": key, "UploadId": name, "Initiated": datetime(2026, 1, day, tzinfo=UTC)}
        for name, day in (("older", 1), ("newer", 2))
    )
    asked = {"Bucket": "b", "Prefix": key}
    more = {"IsTruncated": True, "NextKeyMarker": key, "NextUploadIdMarker": "older"}
    with Stubber(store._client) as bucket:
        bucket.add_response("list_multipart_uploads", {"Uploads": [first], **more}, asked)
        bucket.add_response(
            "list_multipart_uploads",
            {"Uploads": [second]},
            {**asked, "KeyMarker": key, "UploadIdMarker": "older"},
        )
        assert store.open_upload("model.pt") == "newer"
        bucket.assert_no_pending_responses()
