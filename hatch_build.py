"""The long description and the URLs of the package, from the README.

A package index shows the README without the files beside it. `RLCLI_REPOSITORY` is the
address of the repository, such as that of a fork: relative links then lead to the files
of the release there. Without it they become plain text, and the package has no URLs.
"""

import os
import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")


def describe(readme: str, release: str) -> str:
    """The README with absolute links; `release` is the address of its files, or ""."""

    def replace(link: re.Match[str]) -> str:
        mark, text, path = link.groups()
        view = "raw" if mark else "blob"
        return (
            f"{mark}[{text}]({release.format(view=view)}/{path})" if release else text
        )

    return LINK.sub(replace, readme)


class Metadata(MetadataHookInterface):
    """Sets what pyproject.toml calls dynamic, but the version."""

    def update(self, metadata: dict) -> None:
        """Adds the fields to the metadata of the project."""
        address = os.environ.get("RLCLI_REPOSITORY", "").rstrip("/")
        release = f"{address}/{{view}}/v{metadata['version']}" if address else ""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": describe(text, release),
        }
        blob = release.format(view="blob")
        urls = {
            "Source": address,
            "Documentation": f"{blob}/docs/index.md",
            "Changelog": f"{blob}/CHANGELOG.md",
            "Issues": f"{address}/issues",
        }
        metadata["urls"] = urls if address else {}
