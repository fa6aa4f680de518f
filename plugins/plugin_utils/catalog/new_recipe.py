# SPDX-License-Identifier: GPL-3.0-or-later
"""A recipe file that is new to a site: checked, put aside for a trial, and placed among the site's recipes."""

from dataclasses import dataclass
from pathlib import Path

from ...module_utils.common.files_host import publish
from ...module_utils.pinning.contents import check_model
from ...module_utils.weights.manifest import WeightsError
from ..planning.inputs import PlanError
from .files import read
from .recipe_schema import check_recipe


@dataclass(frozen=True)
class NewRecipe:
    """A checked file; ``name`` is its model, under which instances find it."""

    name: str
    content: bytes

    def place(self, directory: str) -> Path:
        """Return the path of the recipe below a directory of recipes."""
        return Path(directory) / f"{self.name}.yaml"

    def text_at(self, directory: str) -> str:
        """Return what the directory has under the recipe's name, empty for nothing. Raises PlanError."""
        try:
            return self.place(directory).read_bytes().decode(errors="replace")
        except FileNotFoundError:
            return ""
        except OSError as exc:
            raise PlanError(f"{self.place(directory)}: cannot be read: {exc.strerror}") from exc

    def write(self, directory: str) -> None:
        """Write the recipe below a directory by one rename. Raises PlanError."""
        path = self.place(directory)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            publish(str(path), self.content)
        except OSError as exc:
            raise PlanError(f"{path}: cannot be written: {exc.strerror}") from exc


def read_new(path: str) -> NewRecipe:
    """Return the recipe in a file. Raises PlanError naming the file and the key where it is invalid."""
    file = Path(path).expanduser()
    recipe = read(file)
    check_recipe(recipe, str(file))
    name = recipe["model"]["model_id"]
    try:
        check_model(name, f"{file}: model.model_id")
    except WeightsError as exc:
        raise PlanError(str(exc)) from exc
    return NewRecipe(name, file.read_bytes())
