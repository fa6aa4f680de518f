# SPDX-License-Identifier: GPL-3.0-or-later


class ModuleDocFragment:
    """The directories of a site's own files, of the modules that plan instances."""

    DOCUMENTATION = r"""
options:
  recipe_path:
    description: Directories of the site's own recipes, searched before the collection's.
    type: list
    elements: path
    default: []
  release_path:
    description: Directories of the site's own releases, searched before the collection's.
    type: list
    elements: path
    default: []
  weights_manifest_path:
    description: Directories of the site's own manifests of weights, searched before the collection's.
    type: list
    elements: path
    default: []
  accelerator_catalog_path:
    description: Directories of the site's own accelerators, as in the role P(baremetal.inference.accelerator#role).
    type: list
    elements: path
    default: []
"""
