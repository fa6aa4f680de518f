# SPDX-License-Identifier: GPL-3.0-or-later
"""Signed addresses of objects in S3 and compatible stores, so that no host ever sees the keys.

Signature version 4 in the query, as the S3 API reference describes it under "Authenticating Requests: Using Query
Parameters".
"""

import configparser
import hashlib
import hmac
import time
import urllib.parse
from dataclasses import dataclass
from typing import Mapping

from ...module_utils.weights.manifest import WeightsError

# The maximum that S3 allows, in seconds: the largest models take days over slow links.
VALIDITY = 7 * 24 * 3600
DEFAULT_REGION = "us-east-1"


@dataclass(frozen=True)
class Keys:
    """The keys of an account; ``session_token`` is empty for permanent keys."""

    access_key: str
    secret_key: str
    session_token: str = ""


def keys_of_environment(environment: Mapping[str, str]) -> Keys | None:
    """Return the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; None where they are not set."""
    access, secret = environment.get("AWS_ACCESS_KEY_ID", ""), environment.get("AWS_SECRET_ACCESS_KEY", "")
    return Keys(access, secret, environment.get("AWS_SESSION_TOKEN", "")) if access and secret else None


def keys_of_file(text: str, profile: str, where: str) -> Keys:
    """Return the keys of a profile in the form of ~/.aws/credentials. Raises WeightsError, never with the content."""
    parser = _parsed(text)
    if parser is None:
        raise WeightsError(f"{where}: expected an INI file with the section [{profile}] and aws_access_key_id")
    try:
        section = parser[profile]
        keys = Keys(
            section["aws_access_key_id"], section["aws_secret_access_key"], section.get("aws_session_token", "")
        )
    except KeyError as exc:
        known = ", ".join(parser.sections()) or "none"
        raise WeightsError(
            f"{where}: profile {profile}: {exc.args[0]} is missing; the profiles there: {known}"
        ) from exc
    return keys


def _parsed(text: str) -> configparser.ConfigParser | None:
    """Return what is in a credentials file, None if it is not an INI file.

    The parser's own error quotes the line, and Ansible shows the errors behind an error.
    """
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error:
        return None
    return parser


def object_address(source: str, key: str, endpoint: str, region: str) -> str:
    """Return the plain address of an object below ``s3://BUCKET/PREFIX``; of AWS where there is no endpoint."""
    parts = urllib.parse.urlsplit(source)
    path = "/".join(filter(None, (parts.path.strip("/"), key)))
    if endpoint:
        return f"{_as_sent(endpoint).rstrip('/')}/{parts.netloc}/{_quoted(path)}"
    if "." in parts.netloc:
        # The certificate of AWS is for one name below its own.
        return f"https://s3.{region}.amazonaws.com/{parts.netloc}/{_quoted(path)}"
    return f"https://{parts.netloc}.s3.{region}.amazonaws.com/{_quoted(path)}"


def _as_sent(endpoint: str) -> str:
    """Return an address with its host as clients send it, which is signed: lower case, without the default port."""
    parts = urllib.parse.urlsplit(endpoint)
    host = parts.netloc.lower()
    usual = {"http": ":80", "https": ":443"}.get(parts.scheme, "")
    return parts._replace(netloc=host[: -len(usual)] if usual and host.endswith(usual) else host).geturl()


def sign(url: str, keys: Keys, region: str, now: float, validity: int = VALIDITY) -> str:
    """Return an address that lets anyone GET the object for ``validity`` seconds after ``now`` (Unix time)."""
    parts = urllib.parse.urlsplit(url)
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    words = {
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{keys.access_key}/{scope}",
        "X-Amz-Date": moment,
        "X-Amz-Expires": str(validity),
        "X-Amz-SignedHeaders": "host",
    }
    if keys.session_token:
        words["X-Amz-Security-Token"] = keys.session_token
    query = "&".join(f"{name}={urllib.parse.quote(words[name], safe='-_.~')}" for name in sorted(words))
    request = "\n".join(("GET", parts.path, query, f"host:{parts.netloc}", "", "host", "UNSIGNED-PAYLOAD"))
    text = "\n".join(("AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{keys.secret_key}".encode()
    for part in (moment[:8], region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    return f"{parts.scheme}://{parts.netloc}{parts.path}?{query}&X-Amz-Signature={signature}"


def _quoted(path: str) -> str:
    return urllib.parse.quote(path, safe="/-_.~")
