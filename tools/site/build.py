# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the documentation site (make site): the pages of this repository, and a page for each module, plugin and role.

The pages are copied to SITE/source, where Sphinx reads them. A link to a file that is not a page leads to the
repository. Nothing is fetched. Every warning of Sphinx, such as a link that leads nowhere, is an error.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

TOP = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
NAME = "baremetal.inference"
INDEX = "docs/README.md"  # its sections and their links are the sidebar
VERSIONS = "versions.md"  # written by this program, from the changelog
COLLECTION = "collection"  # the folder of antsibull-docs' pages
INTERNAL = "internal"  # the folder in it for what only roles and playbooks call
PROJECT = (
    "plugins/README.md",
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
    "CHANGELOG.md",
)  # pages that the index does not list

FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
# Labels of Ansible's own documentation, which the generated pages refer to.
ANSIBLE = "https://docs.ansible.com/ansible/latest"
ANSIBLE_LABELS = {
    "action_plugins": f"{ANSIBLE}/plugins/action.html",
    "ansible_configuration_settings": f"{ANSIBLE}/reference_appendices/config.html",
    "callback_plugins": f"{ANSIBLE}/plugins/callback.html",
    "common_return_values": f"{ANSIBLE}/reference_appendices/common_return_values.html",
}
REFERENCE = re.compile(rf":ref:`(?:([^`<]+?) *<)?({'|'.join(ANSIBLE_LABELS)})>?`")
BUILTIN = re.compile(r":ref:`([^`<]+?) *<ansible_collections\.ansible\.builtin\.(\w+)>`")
CONTENTS = re.compile(r"^\.\. contents::\n(?:   .*\n)*", re.MULTILINE)  # the theme shows one beside each page
SECTION = re.compile(r"^## +([^:\n]+)", re.MULTILINE)


def main() -> None:
    """Build the site below --output."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=TOP / ".cache/site", help="a folder for source and html")
    parser.add_argument("--pages-only", action="store_true", help="leave out the pages of modules, plugins and roles")
    options = parser.parse_args()
    source, html = options.output / "source", options.output / "html"
    for folder in (source, html):
        shutil.rmtree(folder, ignore_errors=True)
    stage(TOP, source, [] if options.pages_only else [f"{COLLECTION}/index"])
    (source / VERSIONS).write_text(versions_page(releases(TOP), commit_of(TOP)), encoding="utf-8")
    if not options.pages_only:
        write_collection(source / COLLECTION)
    run("-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "-c", str(HERE), "-d",
        str(options.output / "doctrees"), "-E", "-b", "html", str(source), str(html))  # fmt: skip
    print(f"{len(list(html.rglob('*.html')))} pages: {html / 'index.html'}")


def run(*arguments: str) -> None:
    """Run a Python program of this environment; end with its status if it fails."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "ANSIBLE_COLLECTIONS_PATH": str(TOP / ".collections"),
        "SITE_VERSION": str(collection_settings()["version"]),
    }
    done = subprocess.run([sys.executable, *arguments], cwd=TOP, env=environment, check=False)
    if done.returncode:
        sys.exit(done.returncode)


@functools.lru_cache(maxsize=1)
def collection_settings() -> dict[str, object]:
    """Return what galaxy.yml holds."""
    settings = yaml.safe_load((TOP / "galaxy.yml").read_text(encoding="utf-8"))
    assert isinstance(settings, dict)
    return settings


def releases(top: Path) -> dict[str, str]:
    """Return the date of each release, the newest first."""
    found = yaml.safe_load((top / "changelogs/changelog.yaml").read_text(encoding="utf-8"))["releases"]
    order = sorted(found, key=lambda version: [int(part) for part in version.split(".")], reverse=True)
    return {version: str(found[version]["release_date"]) for version in order}


def commit_of(top: Path) -> str:
    """Return the short id and the day of a checkout's commit, or an empty text outside of git."""
    command = ["git", "-C", str(top), "log", "-1", "--format=%h of %cs"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stdout.strip()


def versions_page(dates: dict[str, str], commit: str) -> str:
    """Return the page that says which version this site documents, and where the pages of the others are."""
    version = collection_settings()["version"]
    rows = [
        f"| {name} | {date} | [changes](CHANGELOG.md#v{name.replace('.', '')}){', this site' * (name == version)} |"
        for name, date in dates.items()
    ]
    as_of = f", commit {commit}" if commit else ""
    return "\n".join(
        [
            "# Versions\n",
            f"This site documents version **{version}**{as_of}.",
            f"`ansible-galaxy collection list {NAME}` shows which one you have.\n",
            "| version | date | |\n|---|---|---|",
            *rows,
            "\nA site has one version, whose number is beside each page. Every archive from Galaxy brings the pages",
            "of its own version below `docs/`; in a checkout of that version, `make site` builds its site.\n",
        ]
    )


def write_collection(folder: Path) -> None:
    """Let antsibull-docs write a page for each module, plugin and role into a folder."""
    folder.mkdir(parents=True)
    program = str(Path(sys.executable).parent / "antsibull-docs")
    options = ["--use-current", "--no-breadcrumbs", "--squash-hierarchy", "--fail-on-error"]
    run(program, "collection", *options, "--dest-dir", str(folder), NAME)
    for page in folder.glob("*.rst"):
        text = CONTENTS.sub("", page.read_text(encoding="utf-8"))
        page.write_text(with_ansible_links(text), encoding="utf-8")
    index = folder / "index.rst"
    text = move_internal(folder, index.read_text(encoding="utf-8").replace(":orphan:\n", "", 1))
    text = re.sub(
        r"^Baremetal\.Inference\n=+$",
        "Modules, plugins and roles\n==========================",
        text,
        flags=re.MULTILINE,
    )
    index.write_text(text, encoding="utf-8")


def move_internal(folder: Path, index: str) -> str:
    """Move the pages of internal modules and plugins into a folder; return the index, which leads to theirs."""
    lines = index.splitlines(keepends=True)
    moved = [line for line in lines if " -- (internal) " in line]
    (folder / INTERNAL).mkdir()
    for name, kind in re.findall(r"`(\w+) (\w+) <", "".join(moved)):
        (folder / f"{name}_{kind}.rst").rename(folder / INTERNAL / f"{name}_{kind}.rst")
    title = "Internal modules and plugins"
    about = "The roles and playbooks of the collection call them. They may change in any release.\n\n"
    own = [line.replace(" -- (internal) ", " -- ") for line in moved]
    page = f":orphan:\n\n{title}\n{'=' * len(title)}\n\n{about}{''.join(own)}"
    (folder / INTERNAL / "index.rst").write_text(page, encoding="utf-8")
    link = f"What only roles and playbooks call: :doc:`{title.lower()} <{INTERNAL}/index>`.\n\n"
    kept = "".join(line for line in lines if line not in moved)
    return kept.replace("\nThese are the plugins", f"\n{link}These are the plugins", 1)


def with_ansible_links(text: str) -> str:
    """Return the text of a generated page whose references to Ansible's documentation are links to its site."""
    text = BUILTIN.sub(rf"`\1 <{ANSIBLE}/collections/ansible/builtin/\2.html>`__", text)
    return REFERENCE.sub(lambda match: f"`{match[1] or match[2]} <{ANSIBLE_LABELS[match[2]]}>`__", text)


def stage(top: Path, source: Path, further: list[str]) -> None:
    """Copy every page that README.md leads to, and the pictures; README.md becomes the start page, with the sidebar."""
    pages = pages_of(top, ["README.md", INDEX, *PROJECT])
    for page in sorted(pages):
        target = source / staged_name(page)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = staged_text(top, page, pages)
        if page == "README.md":
            text += sidebar(top, pages, further)
        target.write_text(text, encoding="utf-8")
    shutil.copytree(top / "docs/images", source / "docs/images", dirs_exist_ok=True)


def pages_of(top: Path, first: list[str]) -> set[str]:
    """Return the paths of the Markdown files that the first ones lead to, over any number of links."""
    found: set[str] = set()
    waiting = [page for page in first if (top / page).exists()]
    while waiting:
        page = waiting.pop()
        if page in found:
            continue
        found.add(page)
        text = INLINE.sub("", FENCED.sub("", (top / page).read_text(encoding="utf-8")))
        for match in LINK.findall(text):
            target = linked(page, match[1])
            if target and target.endswith(".md") and (top / target).is_file():
                waiting.append(target)
    return found


def linked(page: str, link: str) -> str | None:
    """Return the path, from the top, that a link of a page leads to; None for another site and for the page itself."""
    path = link.partition("#")[0]
    # README.md is also shown on Galaxy, so its links have the repository's address.
    own = re.fullmatch(rf"{re.escape(str(collection_settings()['repository']))}/(?:blob|tree|raw)/main/(.+)", path)
    if own:
        return os.path.normpath(own[1])
    if not path or re.match(r"[a-z]+:", link):
        return None
    return os.path.normpath(os.path.join(os.path.dirname(page), path))


def staged_name(page: str) -> str:
    """Return the name of a page below source."""
    return "index.md" if page == "README.md" else page


def staged_text(top: Path, page: str, pages: set[str]) -> str:
    """Return the text of a page with links that are right on the site."""
    repository = str(collection_settings()["repository"])

    def right(match: re.Match[str]) -> str:
        target = linked(page, match[2])
        if target is None:
            return match[0]
        if target.startswith("docs/images/"):
            return f"{match[1]}{os.path.relpath(target, os.path.dirname(page) or '.')}{match[3]}"
        hash_ = match[2].partition("#")[1:]
        if target in pages:
            path = os.path.relpath(staged_name(target), os.path.dirname(page) or ".")
            return f"{match[1]}{path}{''.join(hash_)}{match[3]}"
        kind = "tree" if (top / target).is_dir() else "blob"
        return f"{match[1]}{repository}/{kind}/main/{target}{match[3]}"

    text = (top / page).read_text(encoding="utf-8")
    parts = re.split(r"(^(?:```|~~~).*?^(?:```|~~~))", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith(("```", "~~~")) else LINK.sub(right, part) for part in parts)


def sidebar(top: Path, pages: set[str], further: list[str]) -> str:
    """Return the sidebar: one part for each section of docs/README.md, with the pages that it links to."""
    text = (top / INDEX).read_text(encoding="utf-8")
    parts, seen = ["", toctree("Index", [INDEX, VERSIONS])], {INDEX, "README.md"}
    headings = list(SECTION.finditer(text))
    for heading, after in zip(headings, [*headings[1:], None]):
        found = [
            linked(INDEX, match[1]) for match in LINK.findall(text[heading.end() : after.start() if after else None])
        ]
        new = [page for page in dict.fromkeys(found) if page in pages and page not in seen]
        seen.update(page for page in new if page)
        parts.append(toctree(heading[1].strip(), [page for page in new if page]))
    parts.append(toctree("Modules, plugins, project", [*further, *sorted(pages - seen)]))
    return "\n".join(parts)


def toctree(caption: str, pages: list[str]) -> str:
    """Return one part of the sidebar."""
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""])


if __name__ == "__main__":
    main()
