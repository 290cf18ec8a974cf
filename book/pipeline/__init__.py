"""What turns `.md` pages into executed, translated notebooks and keeps both in step.

    pages.py       which pages there are, and their source as notebooks
    exercises.py   a solution with the part to fill in left out
    execute.py     run a page once, and write its outputs in one canonical form
    translate.py   MyST Markdown as plain Markdown, for Colab and GitHub
    make.py        source -> notebook, for `make notebooks`
    cache.py       committed outputs -> the page build, for `make book`
    sync.py        page and notebook agree, and enough is compared
    prose.py       no measured number is typed into prose
    address.py     the repository's address, wherever it is written

Only `execute.py` needs a kernel that can import `stacklm`; the page build uses none.
"""
