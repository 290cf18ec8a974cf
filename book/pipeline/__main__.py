"""Commands of the notebook pipeline; the Makefile calls them.

python -m book.pipeline notebooks [--all]   execute what changed, translate
python -m book.pipeline check               pages and notebooks agree
python -m book.pipeline cache               fill the page build's cache
python -m book.pipeline address [URL]       print or set the repository's address
"""

from __future__ import annotations

import argparse
import sys

from book.pipeline.pages import PageError
from book.pipeline.translate import TranslationError

# `cache` ends with this status when some page must be executed by the build.
MUST_EXECUTE = 3


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m book.pipeline")
    commands = parser.add_subparsers(dest="command", required=True)
    notebooks = commands.add_parser("notebooks", help="execute what changed, translate")
    notebooks.add_argument("--all", action="store_true", help="execute every page")
    commands.add_parser("check", help="pages and notebooks agree")
    commands.add_parser("cache", help="fill the page build's cache")
    address = commands.add_parser(
        "address", help="write the repository's address everywhere"
    )
    address.add_argument("url", nargs="?")
    args = parser.parse_args(argv)
    try:
        return COMMANDS[args.command](args)
    except (PageError, TranslationError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        kept = "the pages that were done are kept; run the same command again to go on"
        print(f"error: interrupted; {kept}", file=sys.stderr)
        return 130


# The imports are inside: filling the cache must work where no kernel is installed.
def run_notebooks(args: argparse.Namespace) -> int:
    from book.pipeline.make import make_all

    make_all(force=args.all, say=lambda line: print(line, flush=True))
    return 0


def run_check(args: argparse.Namespace) -> int:
    from book.pipeline.sync import report

    return report()


def run_cache(args: argparse.Namespace) -> int:
    from book.pipeline.cache import fill

    edited = fill()
    for page in edited:
        print(f"{page.name}.md was edited since its notebook was made: it will be run")
    return MUST_EXECUTE if edited else 0


def run_address(args: argparse.Namespace) -> int:
    from book.pipeline.address import rewrite

    changed = rewrite(args.url)
    for path in changed:
        print(f"written: {path}")
    print("run `make notebooks` next" if changed else "every file has it already")
    return 0


COMMANDS = {
    "notebooks": run_notebooks,
    "check": run_check,
    "cache": run_cache,
    "address": run_address,
}

if __name__ == "__main__":
    sys.exit(main())
