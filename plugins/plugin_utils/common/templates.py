# SPDX-License-Identifier: GPL-3.0-or-later
"""Say which texts Ansible may evaluate as templates.

From ansible-core 2.19 on a text is a template only if it is marked as trusted. Releases before evaluate every text that
is not marked as unsafe, however often it has been read, converted or templated before.
"""

from typing import Any, Collection, Iterator

from ansible import template as _template
from ansible.utils.unsafe_proxy import AnsibleUnsafe, wrap_var

_MARKS = ("{{", "{%", "{#")
# Whether this release evaluates texts without a mark.
EVALUATES_ALL = not hasattr(_template, "trust_as_template")


def as_template(text: str) -> Any:
    """Return a text of the collection's own files, marked as a template."""
    return text if EVALUATES_ALL else _template.trust_as_template(text)


def as_text(value: Any) -> Any:
    """Return a value whose texts no release evaluates: data from outside, and results of templates."""
    return wrap_var(value) if EVALUATES_ALL else value


def as_foreign(value: Any, own: Collection[str] = ()) -> Any:
    """Return a value whose texts no release evaluates, but for those of ``own``."""
    if isinstance(value, dict):
        return {key: as_foreign(entry, own) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_foreign(entry, own) for entry in value]
    return value if isinstance(value, str) and value in own else as_text(value)


def texts_of(value: Any) -> Iterator[str]:
    """Yield the texts in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from texts_of(entry)


def is_template(text: str) -> bool:
    """Return whether Ansible would evaluate a text."""
    if "{" not in text or not any(mark in text for mark in _MARKS):
        return False
    return not isinstance(text, AnsibleUnsafe) if EVALUATES_ALL else bool(_template.is_trusted_as_template(text))
