"""The book as one PDF: ``make pdf``.

Chromium prints each built page, with the style sheet of the print button; pypdf binds
them. `contents` says which pages and in which order, `printing` prints, `binding` joins
pages, links, bookmarks and page numbers.
"""
