#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: evaluation_run
short_description: (internal) Ask a vLLM instance the questions of one task with lm-eval, gpt_oss.evals or AISBench
description:
  - Runs the tool on the host against an instance of the role P(baremetal.inference.vllm#role), at the address and with
    the key from the files of the instance, and writes the judged answers into a file in O(work).
  - One evaluation of an instance runs at a time on a host. What interrupted ones left beside O(work) is removed
    after an hour.
  - The tool is ended as soon as another process than the instance's listens at the port.
  - The tool runs as its own user, who has a number and no account, gets the key in its environment and asks no
    hub. Its log may quote the key and is never kept; what of it gets into a message is masked.
extends_documentation_fragment: baremetal.inference.attributes.unsupported
options:
  instance:
    description: Name of the instance.
    type: str
    required: true
  config_dir:
    description: Directory with the files of O(instance).
    type: path
    default: /etc/vllm
  environment:
    description: The virtual environment that has the tool.
    type: path
    required: true
  tool:
    description: The tool that asks the questions and judges the answers.
    type: str
    choices: [lm-eval, gpt-oss, aisbench]
    default: lm-eval
  work:
    description: A directory of this run alone, C(evaluate-X.INSTANCE). One in it is given to the user of the tool.
    type: path
    required: true
  task:
    description: Name of the task.
    type: str
    required: true
  kind:
    description: How an answer is recognised.
    type: str
    choices: [choice, number, word]
    required: true
  data:
    description: The file with a sample in each line, as M(baremetal.inference.evaluation_plan) writes it.
    type: path
    required: true
  request:
    description: What each request has beside the question.
    type: dict
    required: true
  concurrency:
    description: How many questions are asked at the same time, at least 2.
    type: int
    default: 32
  request_timeout:
    description: Seconds until one answer must be complete.
    type: int
    default: 3600
  timeout:
    description: Seconds until all answers must be complete.
    type: int
    default: 21600
  root:
    description: Root of the host's files; for tests.
    type: path
    default: /
notes:
  - Reading the secrets needs root (C(become)).
"""

EXAMPLES = "\n# playbooks/tasks/evaluate_task.yml\n"


from ..module_utils.common.door import start_module
from ..module_utils.evaluation.run_host import BusyError, lock_instance, remove_abandoned, write_result
from ..module_utils.evaluation.task_host import Evaluation, EvaluationError
from ..module_utils.evaluation.tool import OutputError
from ..module_utils.instance.config_file import InstanceError
from ..module_utils.slots.state import SlotError
from ..module_utils.vllm.unit import UnitError


def main() -> None:
    module = start_module(DOCUMENTATION, supports_check_mode=False)
    where = f"instance {module.params['instance']}, task {module.params['task']}"
    try:
        evaluation = Evaluation(module)
        path = f"{module.params['work']}/result.json.gz"
        with lock_instance(evaluation.name, module.params["root"]):
            remove_abandoned(module.params["work"], evaluation.name)
            items = evaluation.ask()
            write_result(path, evaluation.document(items))
    except OSError as exc:
        module.fail_json(msg=f"{where}: {exc.filename or module.params['work']}: {exc.strerror}")
    except (BusyError, EvaluationError, InstanceError, OutputError, SlotError, UnitError, ValueError) as exc:
        module.fail_json(msg=f"{where}: {exc}")
    module.exit_json(changed=False, path=path, correct=sum(item["correct"] for item in items), samples=len(items))


if __name__ == "__main__":
    main()
