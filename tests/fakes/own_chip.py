# SPDX-License-Identifier: GPL-3.0-or-later
"""A vendor with one chip, as a site adds it to the catalogue by accelerator_catalog_path."""

ACME = """
vendor: acme
name: Acme
stack: acme
pci_vendors: {abcd: {classes: ["1200"], unknown_is_error: true}}
stacks: {acme: {}}
models: {rocket: {title: Acme Rocket, generation: r1, memory_gib: 8, pci_ids: {"abcd:0001": {}}}}
"""
