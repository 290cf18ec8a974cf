"""Fetch the browser scripts that the pages load from their own site.

`python book/vendor/refresh.py` installs what package-lock.json names (npm checks
every archive against the lock's hash), copies the few files that a page needs to
`files/`, and records their SHA-256 in manifest.json. To move to a newer version,
edit package.json, run `npm install --package-lock-only` here, then this command.
Font Awesome's version is the theme's; its fonts are cut down to book.site.icons.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fontTools import subset

from book.site.icons import ICONS

HERE = Path(__file__).resolve().parent
FILES = HERE / "files"
MANIFEST = HERE / "manifest.json"
INPUTS = ("package.json", "package-lock.json", ".npmrc")

# {package: (folder under files/, globs inside the package)}. Only woff2 and woff
# fonts: every browser that runs these scripts reads them. No source maps. Of MathJax
# the components that the pages' TeX needs; _config.yml lists them for its loader.
WANTED = {
    "mathjax": (
        "mathjax",
        [
            "LICENSE",
            "es5/startup.js",
            "es5/core.js",
            "es5/input/tex-base.js",
            "es5/input/tex/extensions/ams.js",
            "es5/output/chtml.js",
            "es5/output/chtml/fonts/tex.js",
            "es5/output/chtml/fonts/woff-v2/*.woff",
            "es5/a11y/assistive-mml.js",
        ],
    ),
    "@fortawesome/fontawesome-free": ("icons", ["LICENSE.txt"]),
    "@jupyter-widgets/html-manager": (
        "html-manager",
        ["dist/embed.js", "dist/embed.js.LICENSE.txt", "dist/*.woff2"],
    ),
}


def locked(folder: Path = HERE) -> dict[str, dict[str, str]]:
    """Read version and integrity of the wanted packages from the lock file.

    Args:
        folder: The folder that holds package-lock.json.

    Returns:
        `{package: {"version": ..., "integrity": ...}}`.
    """
    packages = json.loads((folder / "package-lock.json").read_text())["packages"]
    entries = {name: packages[f"node_modules/{name}"] for name in WANTED}
    return {
        name: {key: entry[key] for key in ("version", "integrity")}
        for name, entry in entries.items()
    }


def install(folder: Path) -> Path:
    """Install the lock into `folder`, return its node_modules."""
    for name in INPUTS:
        shutil.copy(HERE / name, folder / name)
    command = ["npm", "ci", "--no-audit", "--no-fund"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "node_modules"


def copy_wanted(modules: Path) -> None:
    """Replace files/ by the wanted files of the installed packages."""
    shutil.rmtree(FILES, ignore_errors=True)
    for package, (target, patterns) in WANTED.items():
        source = modules / package
        for pattern in patterns:
            found = sorted(source.glob(pattern))
            if not found:
                sys.exit(f"{package} has no {pattern}; edit WANTED in {__file__}")
            for path in found:
                copy = FILES / target / path.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)


def subset_icons(modules: Path) -> None:
    """Write Font Awesome's fonts with no glyph but those in ICONS."""
    fonts = modules / "@fortawesome/fontawesome-free/webfonts"
    for name, icons in ICONS.items():
        options = subset.Options(flavor="woff", notdef_outline=True)
        font = subset.load_font(fonts / f"{name}.ttf", options)
        cutter = subset.Subsetter(options)
        cutter.populate(unicodes=icons.values())
        cutter.subset(font)
        subset.save_font(font, FILES / "icons" / f"{name}.woff", options)


def write_bundled_licences(modules: Path) -> None:
    """Write the licence of everything that is bundled into embed.js.

    html-manager ships one file made of many packages, most without a licence file
    of their own in it, so the lock's list is written out with each distinct text.
    """
    beside = ("node_modules/mathjax", "node_modules/@fortawesome/fontawesome-free")
    lines, texts = ["What embed.js bundles, and under which licence:", ""], {}
    packages = json.loads((HERE / "package-lock.json").read_text())["packages"]
    for key, entry in sorted(packages.items()):
        if not key or key in beside:
            continue
        name = key.split("node_modules/")[-1]
        lines.append(f"{name} {entry['version']}: {entry.get('license', 'see below')}")
        folder = modules.parent / key
        for path in sorted(folder.glob("[Ll][Ii][Cc][Ee][Nn][CcSs][Ee]*")):
            if path.is_file():
                text = path.read_text(encoding="utf-8", errors="replace").strip()
                texts.setdefault(text, []).append(name)
    for text, names in texts.items():
        lines += ["", "-" * 72, f"{', '.join(names)}:", "", text]
    out = FILES / "html-manager" / "LICENSES.txt"
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")


def digests(folder: Path = FILES) -> dict[str, str]:
    """Return `{path relative to folder: SHA-256}` of every file in `folder`."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def main() -> None:
    """Install, copy, record."""
    if shutil.which("npm") is None:
        sys.exit("refresh.py needs npm; install Node.js 18 or newer and run it again")
    with tempfile.TemporaryDirectory() as folder:
        modules = install(Path(folder))
        copy_wanted(modules)
        subset_icons(modules)
        write_bundled_licences(modules)
    manifest = {"packages": locked(), "files": digests()}
    MANIFEST.write_text(json.dumps(manifest, indent=2) + "\n")
    size = sum(p.stat().st_size for p in FILES.rglob("*") if p.is_file())
    print(f"{len(manifest['files'])} files, {size / 1e6:.1f} MB in {FILES}")


if __name__ == "__main__":
    main()
