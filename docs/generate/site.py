"""What MkDocs calls when it builds the site: formulas are read, and the API reference is made."""

from __future__ import annotations

from api import pages
from formulas import Formulas, block
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Let Markdown read formulas."""
    config.markdown_extensions.append(Formulas())  # type: ignore[arg-type]  # MkDocs hands it on as it is
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {}).setdefault("custom_fences", [])
    fences.append({"name": "math", "class": "formula", "format": block})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that no file holds."""
    for name, content in pages().items():
        files.append(File.generated(config, f"api/{name}.md", content=content))
    return files
