# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.expiry import end_in_words, end_of

ZONE = datetime.timezone(datetime.timedelta(hours=2))


def test_a_time_ends_keys_in_its_zone():
    texts = ("2027-03-31T18:00+02:00", "2027-03-31 16:00:00Z", "2027-03-31t16:00 z", "2027-03-31T10:30-0530")
    given = [*texts, datetime.datetime(2027, 3, 31, 18, tzinfo=ZONE), yaml.safe_load("2027-03-31T18:00:00+02:00")]
    assert {end_of(value) for value in given} == {1806508800}


def test_words_are_what_the_inventory_may_have():
    assert end_in_words("1806508800") == "2027-03-31T16:00:00Z"
    assert end_in_words("1806537600") == "2027-03-31"
    assert [end_of(end_in_words(end)) for end in ("1806508800", "1806537600")] == [1806508800, 1806537600]
    assert {end_in_words(damaged) for damaged in (None, "", "x", "9" * 30, "9" * 15)} == {"never"}


@pytest.mark.parametrize(
    ("value", "nearest"),
    [
        ("31.3.2027", "2027-03-31"),
        ("31/03/2027", "2027-03-31"),
        ("2027-02-30", "2027-02-28"),
        ("2027-3-1T8:30 CET", "2027-03-01T08:30Z"),
        (datetime.datetime(2027, 1, 1, 8), "2027-01-01T08:00Z"),
        ("9999-12-31", "9999-12-30"),
        (20270331, "2027-03-31"),
        ("2027-03-31T25:00Z", "2027-03-31"),
        ("2027-03-31T18:00+25:00", "2027-03-31T18:00Z"),
    ],
)
def test_anything_else_is_refused_with_the_nearest_valid_end(value, nearest):
    with pytest.raises(ValueError, match=r"^found .*, expected a date such as 2027-03-31, .*; nearest: ") as caught:
        end_of(value)
    assert str(caught.value).endswith(f"; nearest: {nearest}")
    assert end_of(nearest)


@pytest.mark.parametrize("value", ["tomorrow", "1969-12-30", "", 5, ["2027-03-31"], "2027-13-01", "x" * 10000, True])
def test_where_nothing_is_near(value):
    with pytest.raises(ValueError, match="expected a date such as") as caught:
        end_of(value)
    assert "nearest" not in str(caught.value) and len(str(caught.value)) < 250


@pytest.mark.parametrize("value", ["9999-12-31", "9999-12-31T23:59-23:00", "0000-01-01", "2027-00-00"])
def test_days_that_no_calendar_has(value):
    with pytest.raises(ValueError, match="expected a date such as"):
        end_of(value)
