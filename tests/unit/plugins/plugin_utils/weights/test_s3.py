# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime
import random
import string

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import WeightsError
from ansible_collections.baremetal.inference.plugins.plugin_utils.weights.s3 import (
    Keys,
    keys_of_environment,
    keys_of_file,
    object_address,
    sign,
)
from botocore import auth, credentials
from botocore import awsrequest as requests

# The example of the S3 API reference, "Authenticating Requests: Using Query Parameters": 24 May 2013, one day.
EXAMPLE = Keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
EXAMPLE_TIME = 1369353600
EXAMPLE_SIGNATURE = "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
FILE = "[default]\naws_access_key_id = A\naws_secret_access_key = B\n[site]\naws_access_key_id = C\n"


def test_signature_is_that_of_the_reference():
    signed = sign("https://examplebucket.s3.amazonaws.com/test.txt", EXAMPLE, "us-east-1", EXAMPLE_TIME, 86400)
    assert signed.endswith(f"&X-Amz-Signature={EXAMPLE_SIGNATURE}")


@pytest.mark.parametrize("token", ["", "a/token+with=signs"])
def test_signature_is_that_of_the_vendors_client(token, monkeypatch):
    now = datetime.datetime(2026, 11, 21, 12, 0, 1, tzinfo=datetime.timezone.utc)
    monkeypatch.setattr(auth, "get_current_datetime", lambda *_words: now.replace(tzinfo=None))
    order = random.Random(3)
    for _time in range(20):
        name = "".join(order.choice(string.ascii_letters + string.digits + " +-_.~=&%") for _letter in range(12))
        url = object_address("s3://models/some prefix", f"org/{name}", "https://s3.example.com:9000", "eu-west-1")
        request = requests.AWSRequest("GET", url)
        auth.S3SigV4QueryAuth(credentials.Credentials("AK", "SK", token or None), "s3", "eu-west-1", 600).add_auth(
            request
        )
        theirs = dict(word.split("=", 1) for word in request.url.partition("?")[2].split("&"))
        ours = sign(url, Keys("AK", "SK", token), "eu-west-1", now.timestamp(), 600)
        assert dict(word.split("=", 1) for word in ours.partition("?")[2].split("&")) == theirs


def test_address_of_an_object():
    plain = object_address("s3://models/weights/", "a/b c", "", "eu-west-1")
    assert plain == "https://models.s3.eu-west-1.amazonaws.com/weights/a/b%20c"
    own = object_address("s3://models", "a/b", "https://s3.example.com/", "us-east-1")
    assert own == "https://s3.example.com/models/a/b"
    # What is signed is the host as it is sent.
    same = object_address("s3://models", "a/b", "https://S3.Example.com:443", "us-east-1")
    assert same == own
    assert object_address("s3://models", "a", "http://s3.lan:9000", "x") == "http://s3.lan:9000/models/a"
    # One name below AWS's own is in its certificate.
    dots = object_address("s3://my.bucket/w", "a", "", "eu-west-1")
    assert dots == "https://s3.eu-west-1.amazonaws.com/my.bucket/w/a"


def test_keys_come_from_the_environment_or_from_a_file():
    both = {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "B"}
    assert keys_of_environment(both) == Keys("A", "B")
    assert keys_of_environment({**both, "AWS_SESSION_TOKEN": "C"}) == Keys("A", "B", "C")
    assert keys_of_environment({"AWS_ACCESS_KEY_ID": "A"}) is None
    assert keys_of_file(FILE, "default", "x") == Keys("A", "B")


@pytest.mark.parametrize(
    ("text", "profile", "message"),
    [
        (FILE, "site", "x: profile site: aws_secret_access_key is missing; the profiles there: default, site"),
        (FILE, "other", "x: profile other: other is missing; the profiles there: default, site"),
        ("secret words", "default", "expected an INI file with the section"),
    ],
)
def test_file_without_keys_is_refused_without_a_word_of_it(text, profile, message):
    with pytest.raises(WeightsError, match=message) as error:
        keys_of_file(text, profile, "x")
    # Ansible shows the errors behind an error too.
    found = error.value
    while found is not None:
        assert "secret words" not in str(found)
        found = found.__cause__ or found.__context__
