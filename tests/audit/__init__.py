"""What takes too long for every run: ``make audit``, or one part of it by itself.

    python -m tests.audit.axe          accessibility of every page
    python -m tests.audit.lighthouse   scores and weights of every page
    python -m tests.audit.colab        every notebook, with Colab's packages
    python -m tests.audit.links        every address that leads out of the book

Each works on the pages in ``_build/html`` and exits with status 1 if it finds a fault.
"""
