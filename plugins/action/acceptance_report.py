# SPDX-License-Identifier: GPL-3.0-or-later

import json
import os
import time
from typing import Any

from ..module_utils.common.files_host import publish
from ..plugin_utils.acceptance.options import AcceptanceError
from ..plugin_utils.acceptance.page import page
from ..plugin_utils.acceptance.report import file_stem, result_of, summary_lines
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.output import show
from ..plugin_utils.common.places import collection_version


class ActionModule(ControllerAction):
    """Judge the measurements of a host, and write result and page."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        host = str(variables.get("inventory_hostname", ""))
        tool = f"baremetal.inference {collection_version()}"
        document, judgement = result_of(host, tool, time.time(), {**options, "minutes": float(options["minutes"])})
        stem = os.path.join(options["dir"], file_stem(host, document["date"]))
        texts = {f"{stem}.json": json.dumps(document, indent=2) + "\n", f"{stem}.html": page(document)}
        if self._task.check_mode:
            texts = {}
        for path, text in texts.items():
            _write(path, text)
        show("\n".join(summary_lines(document, list(texts))))
        return {
            "accepted": judgement.accepted,
            "findings": document["findings"],
            "not_tried": document["not_tried"],
            "files": list(texts),
            "summary": " | ".join(finding.sentence for finding in judgement.findings),
        }


def _write(path: str, text: str) -> None:
    try:
        publish(path, text, 0o644)
    except OSError as exc:
        raise AcceptanceError(f"accept_dir: {path} cannot be written: {exc.strerror}") from exc
