# SPDX-License-Identifier: GPL-3.0-or-later
"""The limits of the one reader; what it reads is in test_survey_fuzz.py and provisioning/test_server.py."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.chips import RedfishError
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.reader import MAX_DOCUMENTS, Reader


def run(steps, documents):
    """Return what a generator of the reader returns, and the paths that it asked for."""
    asked = []
    try:
        wanted = next(steps)
        while True:
            asked += [item.path for item in wanted]
            wanted = steps.send({item.path: documents.get(item.path) for item in wanted})
    except StopIteration as done:
        return done.value, asked


def test_a_document_is_asked_for_once_and_keeps_the_named_keys_only():
    documents = {"/redfish/v1/A": {"Name": "a", "Secret": "s", "@odata.id": "/redfish/v1/OTHER"}}
    reader = Reader(("Name",))
    found, asked = run(reader.get(["/redfish/v1/A", "/redfish/v1/A"]), documents)
    assert found[0] == {"Name": "a", "@odata.id": "/redfish/v1/A"}
    assert run(reader.get(["/redfish/v1/A/"]), documents) == ([found[0]], [])
    assert asked == ["/redfish/v1/A"]


def test_a_document_that_the_service_lacks_is_empty():
    assert run(Reader().get(["/redfish/v1/A"]), {})[0] == [{"@odata.id": "/redfish/v1/A"}]


def test_pages_that_lead_in_a_circle_end():
    pages = {
        f"/redfish/v1/P{number}": {
            "Members": [{"@odata.id": f"/redfish/v1/M{number}"}],
            "Members@odata.nextLink": f"/redfish/v1/P{1 - number}",
        }
        for number in (0, 1)
    }
    found, _asked = run(Reader().members(["/redfish/v1/P0"]), pages)
    assert [each["@odata.id"] for each in found] == ["/redfish/v1/M0", "/redfish/v1/M1"]


def test_a_service_that_leads_to_too_many_documents_is_refused():
    paths = [f"/redfish/v1/{number}" for number in range(MAX_DOCUMENTS + 1)]
    with pytest.raises(RedfishError, match="lead to more than"):
        run(Reader().get(paths), {})
