# SPDX-License-Identifier: GPL-3.0-or-later
"""What people and machines write into fleet files by mistake, and what they are told."""

from __future__ import annotations

import json
import os
import textwrap

import pytest
from ansible.errors import AnsibleParserError
from ansible_collections.baremetal.inference.plugins.plugin_utils.inventory.sorting import MOST_CHIPS

from tests.fakes.inventory_plugin import NAME, command, inventory_of, listed, parse, write_source
from tests.fakes.outputs import squeezed

COUNTS = f"expected a whole number from 1 to {MOST_CHIPS}"
ALWAYS = {f"accel_{stack}" for stack in ("cuda", "rocm", "cann", "gaudi", "xpu", "cpu", "unknown")}


def yaml_host(**variables):
    """Return a YAML file with the host gpu-1, its variables beginning in line 3."""
    return "hosts:\n  gpu-1:\n" + "".join(f"    {key}: {value}\n" for key, value in variables.items())


def bomb(levels=9):
    """Return a YAML text in which each anchor stands for nine of the one before."""
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "hosts:\n  gpu-1:\n" + textwrap.indent("\n".join(lines), "    ") + "\n"


# What is wrong: the files, and what the error has to say. Line numbers count from 1.
BAD = {
    "a host in two files": (
        {"a.csv": "name,accelerator\ngpu-0,h200\ngpu-1,h200\n", "b.yml": yaml_host(accelerator="h200")},
        ("b.yml:2", "'gpu-1'", "a.csv:3"),
    ),
    "a host in two lines of a table": (
        {"fleet.csv": "name,accelerator\ngpu-1,h200\ngpu-2,h200\ngpu-1,h100\n"},
        ("fleet.csv:4", "'gpu-1'", "fleet.csv:2"),
    ),
    "a host twice in YAML": (
        {"fleet.yml": "hosts:\n  gpu-1: {}\n  gpu-2: {}\n  gpu-1: {}\n"},
        ("fleet.yml:4", "'gpu-1'", "line 2"),
    ),
    "a host twice in JSON": (
        {"fleet.json": '{"hosts": {\n"gpu-1": {},\n"gpu-1": {}}}'},
        ("fleet.json:3", "'gpu-1'", "line 2"),
    ),
    "a variable twice": (
        {"fleet.yml": yaml_host(accelerator="h200") + "    accelerator: h100\n"},
        ("fleet.yml:4", "'accelerator'"),
    ),
    "a variable twice in JSON": (
        {"fleet.json": '{"hosts": {\n"a": {"x": 1,\n"x": 2},\n"b": {"x": 1}}}'}, ("fleet.json:3", "'x'", "line 2"),
    ),
    "twice, and then no JSON": ({"fleet.json": r'{"a": {"x": 1, "x": 2}, "\q": 1'}, ("fleet.json:1",)),
    "an unknown model": (
        {"fleet.csv": "name,accelerator\ngpu-1,h200\ngpu-2,h2000\n"},
        ("fleet.csv:3", "gpu-2", "accelerator", "'h2000'", "nearest: 'h200'"),
    ),
    "a model in capitals": ({"fleet.yml": yaml_host(accelerator="MI300X")}, ("fleet.yml:2", "nearest: 'mi300x'")),
    "a model that is a number": ({"fleet.yml": yaml_host(accelerator="200")}, ("fleet.yml:2", "200", "like h200")),
    "a model that is a list": ({"fleet.yml": yaml_host(accelerator="[h200]")}, ("fleet.yml:2", "['h200']")),
    "an unknown model of several": (
        {"fleet.csv": "name,accelerators\ngpu-1,h200:4 l40z:2\n"},
        ("fleet.csv:2", "gpu-1", "accelerators", "'l40z'", "nearest: 'l40"),
    ),
    "several models without numbers": (
        {"fleet.csv": "name,accelerators\ngpu-1,h200 l40s\n"},
        ("fleet.csv:2", "gpu-1", "accelerators", "'h200 l40s'", "h200: 4"),
    ),
    "both ways to say it": (
        {"fleet.yml": yaml_host(accelerator="h200", accelerators="{h200: 4}")},
        ("fleet.yml:2", "gpu-1", "accelerators", "accelerator_count"),
    ),
    "accelerators of a processor": (
        {"fleet.yml": yaml_host(accelerator="cpu", accelerator_count=8)},
        ("fleet.yml:2", "accelerator_count", "8", "cpu"),
    ),
    "a count below zero": (
        {"fleet.yml": yaml_host(accelerator="h200", accelerator_count=-8)}, ("fleet.yml:2", "-8", COUNTS),
    ),
    "a count of zero": ({"fleet.yml": yaml_host(accelerator="h200", accelerator_count=0)}, ("found 0", COUNTS)),
    "a count in words": ({"fleet.yml": yaml_host(accelerator="h200", accelerator_count="eight")}, ("'eight'", COUNTS)),
    "half a chip": ({"fleet.yml": yaml_host(accelerator="h200", accelerator_count=0.5)}, ("0.5", COUNTS)),
    "a count of true": ({"fleet.yml": yaml_host(accelerator="h200", accelerator_count="true")}, ("true", COUNTS)),
    "a list of counts": ({"fleet.yml": yaml_host(accelerator="h200", accelerator_count="[8]")}, ("[8]", COUNTS)),
    "more than a host can have": (
        {"fleet.csv": f"name,accelerator,accelerator_count\ngpu-1,h200,{MOST_CHIPS + 1}\n"},
        ("fleet.csv:2", "gpu-1", "accelerator_count", str(MOST_CHIPS + 1), COUNTS),
    ),
    "a count below zero in a table": (
        {"fleet.csv": "name,accelerator,accelerator_count\ngpu-1,h200,-1\n"}, ("fleet.csv:2", "-1", COUNTS),
    ),
    "a count in words in a table": (
        {"fleet.csv": "name,accelerator,accelerator_count\ngpu-1,h200,8x\n"}, ("fleet.csv:2", "'8x'", COUNTS),
    ),
    "a count with thousands of digits": (
        {"fleet.yml": yaml_host(accelerator="h200", accelerator_count="0x" + "f" * 6000)}, ("fleet.yml:",),
    ),
    "a count of a kind that is zero": (
        {"fleet.yml": yaml_host(accelerators="{h200: 4, l40s: 0}")}, ("fleet.yml:2", "accelerators.l40s", COUNTS),
    ),
    "two clusters with one group": (
        {"fleet.csv": "name,cluster\na,fra-1\nb,fra_1\n"}, ("fleet.csv", "'fra-1'", "'fra_1'", "cluster_fra_1"),
    ),
    "a cluster that is a list": ({"fleet.yml": yaml_host(cluster="[a]")}, ("fleet.yml:2", "cluster", "['a']")),
    "a site without a letter": ({"fleet.csv": "name,site\na,-\n"}, ("fleet.csv:2", "site", "'-'")),
    "no column with names": ({"fleet.csv": "node,accelerator\ngpu-1,h200\n"}, ("fleet.csv:1", "node", "'name'")),
    "no header": ({"fleet.csv": "gpu-1,h200\ngpu-2,h200\n"}, ("fleet.csv:1", "'name'")),
    "a column twice": ({"fleet.csv": "name,site,site\ngpu-1,a,b\n"}, ("fleet.csv:1", "'site'", "twice")),
    "a column without a name": ({"fleet.csv": "name,,site\ngpu-1,a,b\n"}, ("fleet.csv:1", "without a name")),
    "a cell too few": ({"fleet.csv": "name,accelerator,site\ngpu-1,h200\n"}, ("fleet.csv:2", "2", "3", "site")),
    "a cell too many": ({"fleet.csv": "name,accelerator\n\ngpu-1,h200,fra1\n"}, ("fleet.csv:3", "3", "2")),
    "no name in a row": ({"fleet.csv": "name,accelerator\n ,h200\n"}, ("fleet.csv:2", "no name")),
    "a line and a bell in a header": ({"fleet.csv": 'x,"me,\aclass\na,"'}, ("fleet.csv:2", "'name'")),
    "a quote that is left open": ({"fleet.csv": 'name,note\ngpu-1,"unfinished\ngpu-2,x\n'}, ("fleet.csv:",)),
    "text after a quote": ({"fleet.csv": 'name,note\ngpu-1,"a"b\n'}, ("fleet.csv:2",)),
    "a table in UTF-16": ({"fleet.csv": "name,accelerator\ngpu-1,h200\n".encode("utf-16")}, ("fleet.csv:1", "UTF-8")),
    "a table in Latin-1": ({"fleet.csv": "name,note\ngpu-1,Zürich\n".encode("latin-1")}, ("fleet.csv:2", "UTF-8")),
    "bytes": ({"fleet.yml": b"\xff\xfe\x00\x80" * 20}, ("fleet.yml:1", "UTF-8")),
    "bytes of JSON": ({"fleet.json": b'{"hosts": {"a": {"x": "\xc3"}}}'}, ("fleet.json:1", "UTF-8")),
    "a bomb of anchors": ({"fleet.yml": bomb()}, ("fleet.yml:", "values")),
    "a small bomb": ({"fleet.yml": bomb(5)}, ("fleet.yml:", "values")),
    "deep nesting": ({"fleet.yml": yaml_host(x="[" * 2000 + "]" * 2000)}, ("fleet.yml:3", "nest")),
    "deep nesting in JSON": (
        {"fleet.json": '{"hosts": {"a": {"x": ' + "[" * 10**5 + "]" * 10**5 + "}}}"}, ("fleet.json:1", "nested deeper"),
    ),
    "an object of Python": ({"fleet.yml": yaml_host(x="!!python/object/apply:os.system [id]")}, ("fleet.yml:3", "tag")),
    "a vaulted value": ({"fleet.yml": yaml_host(x="!vault abc")}, ("fleet.yml:3", "!vault")),
    "a vaulted file": ({"fleet.yml": "$ANSIBLE_VAULT;1.1;AES256\n6162\n"}, ("fleet.yml:1", "vault")),
    "a vaulted table": ({"fleet.csv": "$ANSIBLE_VAULT;1.1;AES256\n6162\n"}, ("fleet.csv:1", "vault")),
    "a vaulted JSON": ({"fleet.json": "$ANSIBLE_VAULT;1.1;AES256\n6162\n"}, ("fleet.json:1", "vault")),
    "two documents": ({"fleet.yml": "hosts: {}\n---\nhosts: {}\n"}, ("fleet.yml:2", "document")),
    "a tab": ({"fleet.yml": "hosts:\n\tgpu-1: {}\n"}, ("fleet.yml:2",)),
    "an anchor that nobody set": ({"fleet.yml": yaml_host(x="*nothing")}, ("fleet.yml:3", "nothing")),
    "a sign for merging as a value": ({"fleet.yml": yaml_host(x="<<")}, ("fleet.yml:3",)),
    "a list of hosts": ({"fleet.yml": "hosts:\n  - gpu-1\n"}, ("fleet.yml:", "hosts", "mapping")),
    "a list": ({"fleet.yml": "- gpu-1\n"}, ("fleet.yml:1", "'hosts'")),
    "a text": ({"fleet.yml": "gpu-1\n"}, ("fleet.yml:1", "'hosts'")),
    "host for hosts": ({"fleet.yml": "host:\n  gpu-1: {}\n"}, ("fleet.yml:1", "'host'", "'hosts'")),
    "a second key beside hosts": ({"fleet.json": '{"hosts": {}, "vars": {}}'}, ("fleet.json:1", "'vars'")),
    "variables that are a text": (
        {"fleet.yml": "hosts:\n  gpu-1: h200\n"}, ("fleet.yml:2", "'gpu-1'", "accelerator: h200"),
    ),
    "a number as a host": ({"fleet.yml": "hosts:\n  12: {}\n"}, ("fleet.yml:2", "12", "quotes")),
    "JSON cut short": ({"fleet.json": '{"hosts": {\n"gpu-1": {"accele'}, ("fleet.json:2",)),
    "not a number": ({"fleet.json": '{"hosts": {"a": {"x": NaN}}}'}, ("fleet.json:1", "NaN")),
    "an infinite number": ({"fleet.json": '{"hosts": {"a": {"x": 1e999}}}'}, ("fleet.json:1", "inf")),
    "half a character": ({"fleet.json": r'{"hosts": {"a": {"x": "\ud800"}}}'}, ("fleet.json:1", "surrogate")),
    "a variable that is none": ({"fleet.csv": "name,rack-no\na,1\n"}, ("fleet.csv:2", "'rack-no'")),
    "a variable that Python keeps": ({"fleet.csv": "name,class\na,1\n"}, ("fleet.csv:2", "'class'")),
    "a variable that the plugin sets": (
        {"fleet.csv": "name,accelerator_detected\na,1\n"}, ("fleet.csv:2", "accelerator_detected"),
    ),
    "a password": (
        {"fleet.csv": "name,accelerator_bmc_password\na,s3cret\n"},
        ("fleet.csv:2", "accelerator_bmc_password", "group_vars"),
    ),
    "a kind of file that nobody reads": ({"fleet.xlsx": b"PK\x03\x04"}, ("fleet.xlsx", ".csv", ".json", ".yml")),
}  # fmt: skip


@pytest.mark.parametrize(("files", "words"), BAD.values(), ids=BAD)
def test_is_told_in_one_sentence(tmp_path, files, words):
    source = write_source(tmp_path, files)
    with pytest.raises(AnsibleParserError) as error:
        parse(source)
    text = str(error.value)
    assert [word for word in words if word not in text] == [], text
    assert text.isprintable()
    assert len(text) < 1000


BAD_NAMES = (
    "a b", "-x", ".x", "a;id", "a/b", "../x", "$(id)", "{{ 7 * 7 }}", "a[1:3]", "a,b", "a:22", "all", "ungrouped", "ä",
    "x" * 254, "a\n", "fe80::1%eth0", "!a", "a*", "~a", "&a", "host\0",
)  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_is_none(tmp_path, name):
    source = write_source(tmp_path, {"fleet.json": json.dumps({"hosts": {"gpu-1": {}, name: {}}}, indent=1)})
    with pytest.raises(AnsibleParserError) as error:
        parse(source)
    assert f"{tmp_path}/fleet.json:4: " in str(error.value)
    assert "name of a host" in str(error.value)


@pytest.mark.parametrize("name", ["gpu-1", "GPU_1", "10.0.0.1", "fd00::1", "gpu-1.fra1.example.com", "1", "x" * 253])
def test_a_name_or_an_address(tmp_path, name):
    found = parse(write_source(tmp_path, {"fleet.json": json.dumps({"hosts": {name: {"accelerator": "h200"}}})}))
    assert found.groups["accel_h200"] == {name}


@pytest.mark.parametrize(
    "name", ["accel_cuda", "accel_h200", "accel_l40s", "cluster_c1", "site_s1", "accelerator_conflict"]
)
def test_a_host_that_is_called_like_a_group(tmp_path, name):
    """Ansible's own plugins only warn; what must not be is a group below itself or variables of the wrong object."""
    hosts = {name: {"accelerator": "h200", "cluster": "c1", "site": "s1"}, "a": {"accelerator": "l40s"}}
    source = write_source(tmp_path, {"fleet.json": json.dumps({"hosts": hosts})})
    try:
        found = parse(source)
    except AnsibleParserError as error:
        assert f"{tmp_path}/fleet.json:1: " in str(error)
    else:
        assert found.groups_of(name) == {"accel_cuda", "accel_hopper", "accel_h200", "cluster_c1", "site_s1"}
        assert found.groups["accel_l40s"] == {"a"}
        assert found.variables[name] == hosts[name]


GOOD_TABLES = {
    "a mark of byte order": b"\xef\xbb\xbfname,accelerator,note\ngpu-1,h200,x\n",
    "lines of Windows": b"name,accelerator,note\r\ngpu-1,h200,x\r\n",
    "no last newline": b"name,accelerator,note\ngpu-1,h200,x",
    "empty lines": b"name,accelerator,note\n\ngpu-1,h200,x\n,,\n\n",
    "quotes": b'"name","accelerator","note"\n"gpu-1","h200","x"\n',
    "spaces": b"name, accelerator ,note\n gpu-1 , h200, x \n",
    "semicolons": b"name;accelerator;note\ngpu-1;h200;x\n",
    "tabs": b"name\taccelerator\tnote\ngpu-1\th200\tx\n",
    "columns in another order": b"note,accelerator,name\nx,h200,gpu-1\n",
    "all of it": b'\xef\xbb\xbf"name";accelerator;"note"\r\n\r\n"gpu-1";h200;"x"\r\n',
}


@pytest.mark.parametrize("table", GOOD_TABLES.values(), ids=GOOD_TABLES)
def test_tables_as_spreadsheets_write_them(tmp_path, table):
    found = parse(write_source(tmp_path, {"fleet.csv": table}))
    assert found.variables == {"gpu-1": {"accelerator": "h200", "note": "x"}}
    assert found.groups["accel_h200"] == {"gpu-1"}


def test_a_cell_with_separator_quotes_and_line_in_it(tmp_path):
    found = parse(write_source(tmp_path, {"fleet.csv": 'name,note\r\na,"one, ""two""\r\nthree"\r\nb,x\r\n'}))
    assert found.variables["a"]["note"] == 'one, "two"\r\nthree'
    assert list(found.variables) == ["a", "b"]


def test_an_empty_cell_gives_no_variable(tmp_path):
    found = parse(write_source(tmp_path, {"fleet.csv": "name,accelerator,site\na,,fra\n"}))
    assert found.variables == {"a": {"site": "fra"}}


@pytest.mark.parametrize("name", ["fleet.yml", "fleet.json", "fleet.csv"])
def test_large_files_are_not_read_to_the_end(tmp_path, name):
    source = write_source(tmp_path, {name: "hosts:\n"})
    os.truncate(tmp_path / name, 100 * 1024 * 1024)
    with pytest.raises(AnsibleParserError, match=f"{name}: larger than 64 MiB"):
        parse(source)


def replaced(tmp_path, kind):
    """Put something that is no file where the fleet file is to be."""
    path = tmp_path / "fleet.csv"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "dangling link":
        path.symlink_to(tmp_path / "nowhere")
    elif kind == "circle":
        path.symlink_to(path)
    return "accelerators.yml/fleet.csv" if kind == "below a file" else "fleet.csv"


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("directory", "directory"),
        ("pipe", "expected a file"),
        ("dangling link", "No such file"),
        ("circle", "symbolic links"),
        ("below a file", "Not a directory"),
        ("nothing", "No such file"),
    ],
)
def test_what_is_no_file(tmp_path, kind, word):
    name = replaced(tmp_path, kind)
    source = write_source(tmp_path, {}, fleet_files=[name])
    with pytest.raises(AnsibleParserError) as error:
        parse(source)
    assert f"{tmp_path}/{name}: " in str(error.value)
    assert word in str(error.value)


def test_a_path_with_a_null(tmp_path):
    with pytest.raises(AnsibleParserError):
        parse(write_source(tmp_path, {}, fleet_files=["fleet\0.csv"]))


def test_a_glob_that_matches_nothing_is_a_warning(tmp_path):
    source = write_source(tmp_path, {"a.csv": "name\na\n"}, fleet_files=["a.csv", "more/*.csv"])
    found = parse(source)
    assert found.variables == {"a": {}}
    assert [text for text in found.warnings if f"{tmp_path}/more/*.csv" in text]


@pytest.mark.parametrize(
    "files",
    [
        {"fleet.csv": "name,accelerator\n"},
        {"fleet.csv": ""},
        {"fleet.yml": "# nothing yet\n"},
        {"fleet.yml": "hosts:\n"},
        {"fleet.json": "{}"},
        {"fleet.json": '{"hosts": {}}'},
    ],
)
def test_an_empty_fleet_is_a_warning_and_empty_groups(tmp_path, files):
    found = parse(write_source(tmp_path, files))
    assert [text for text in found.warnings if "no hosts" in text]
    assert {group for group in ALWAYS | {"accelerator_conflict"} if found.groups.get(group) != frozenset()} == set()


def test_a_source_that_is_read_before_the_hosts_is_a_warning(tmp_path):
    source = write_source(tmp_path, {}, fleet_files=[])
    assert [text for text in parse(source).warnings if "such as z-accelerators.yml" in text]
    assert parse(source, inventory_of({"earlier": {"accelerator": "h100"}})).warnings == []


def test_nothing_is_added_where_something_is_wrong(tmp_path):
    source = write_source(tmp_path, {"a.csv": "name,accelerator\na,h200\nb,h2000\n"})
    inventory = inventory_of({"earlier": {"accelerator": "h100"}})
    with pytest.raises(AnsibleParserError):
        parse(source, inventory)
    assert list(inventory.hosts) == ["earlier"]
    assert set(inventory.groups) == {"all", "ungrouped"}


def test_a_wrong_variable_of_an_earlier_source_names_the_host(tmp_path):
    with pytest.raises(AnsibleParserError) as error:
        parse(write_source(tmp_path, {}), inventory_of({"gpu-7": {"accelerator": "h2000"}}))
    assert "gpu-7" in str(error.value)
    assert "nearest: 'h200'" in str(error.value)


def test_templates_stay_text(tmp_path):
    mark = tmp_path / "executed"
    evil = "{{ lookup('ansible.builtin.pipe', 'touch MARK') }}".replace("MARK", str(mark))
    rows = [["name", "motd", "accelerator", "cluster"], ["a", f'"{evil}"', "h200", "c1"]]
    files = {
        "a.csv": "\n".join(",".join(row) for row in rows) + "\n",
        "b.json": json.dumps({"hosts": {"b": {"motd": evil, "deep": [{"x": evil}]}}}),
        "c.yml": f'hosts:\n  c:\n    motd: "{evil}"\n',
    }
    source = write_source(tmp_path, files)
    done = listed(source)
    assert done.returncode == 0, done.stderr
    hosts = json.loads(done.stdout)["_meta"]["hostvars"]
    # How ansible-inventory marks a text that looks like a template and is none.
    assert [hosts[name]["motd"] for name in "abc"] == [{"__ansible_unsafe": evil}] * 3
    play = tmp_path / "play.yml"
    task = {"ansible.builtin.debug": {"msg": "{{ motd }} and {{ deep | default('') }}"}}
    play.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [task]}]))
    shown = command(tmp_path, "ansible-playbook", "-i", str(source), str(play), ANSIBLE_STDOUT_CALLBACK="oneline")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert shown.stdout.count("lookup('ansible.builtin.pipe'") >= 3
    assert not mark.exists()


def test_the_commands_end_with_an_error(tmp_path):
    source = write_source(tmp_path, {"fleet.csv": "name,accelerator\ngpu-1,h2000\n"})
    done = listed(source)
    assert done.returncode != 0
    assert squeezed(f"{tmp_path}/fleet.csv:2: ") in squeezed(done.stderr)
    assert squeezed("nearest: 'h200'") in squeezed(done.stderr)
    assert "Traceback" not in done.stderr


def test_an_empty_fleet_ends_well(tmp_path):
    done = listed(write_source(tmp_path, {"fleet.csv": "name,accelerator\n"}))
    assert done.returncode == 0, done.stderr
    assert "no hosts" in done.stderr
    assert set(json.loads(done.stdout)["all"]["children"]) >= ALWAYS


def test_the_file_of_another_plugin_is_refused(tmp_path):
    source = tmp_path / "accelerators.yml"
    source.write_text("plugin: ansible.builtin.constructed\n")
    with pytest.raises(AnsibleParserError, match="plugin"):
        parse(source)
    assert NAME not in source.read_text()
