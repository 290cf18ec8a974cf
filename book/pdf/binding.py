"""Many PDFs become one: pages, links between them, bookmarks, numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pypdf import PageObject, PdfReader, PdfWriter
from pypdf.generic import (
    ArrayObject,
    DecodedStreamObject,
    DictionaryObject,
    Fit,
    FloatObject,
    NameObject,
    NullObject,
    TextStringObject,
)

from book.pdf.contents import Part
from book.pdf.printing import Printed, split

# Links that exist only to make destinations are this low, in points.
HIDDEN_PT = 3


@dataclass
class Volume:
    """The book while it is bound.

    Args:
        html: The folder of the built pages, which their links start with.
    """

    html: Path
    writer: PdfWriter = field(default_factory=PdfWriter)
    # {(page of the book, id or ""): (sheet, height in points)}, sheets from 0.
    places: dict[tuple[str, str], tuple[int, float]] = field(default_factory=dict)
    owners: list[str] = field(default_factory=list)

    def add(self, name: str, pdf: Path) -> None:
        """Append a printed page and remember where its ids are."""
        reader, start = PdfReader(pdf), len(self.owners)
        for sheet in reader.pages:
            self.writer.add_page(sheet)
            self.owners.append(name)
        top = float(reader.pages[0].mediabox.top)
        self.places[name, ""] = (start, top)
        for key, to in reader.named_destinations.items():
            sheet = start + reader.get_destination_page_number(to)
            self.places[name, key.lstrip("/")] = (sheet, float(to.top))

    def target(self, link: DictionaryObject, owner: str) -> tuple[str, str] | None:
        """Which page and id of the book a link leads to; None if elsewhere."""
        if "/Dest" in link:
            return owner, str(link["/Dest"]).lstrip("/")
        uri = str(link.get("/A", {}).get("/URI", ""))
        base = self.html.as_uri() + "/"
        if not uri.startswith(base):
            return None
        page, anchor = split(uri.removeprefix(base), "")
        return (page or "", anchor)

    def relink(self) -> int:
        """Let links between pages lead to sheets; returns how many do.

        A link to a file of the site that is not in the book, such as a notebook to
        download, is taken out: it would lead to a folder of the machine that printed.
        """
        inner = 0
        for sheet, owner in zip(self.writer.pages, self.owners, strict=True):
            kept = ArrayObject()
            for reference in sheet.get("/Annots", ()):
                link = reference.get_object()
                found = self.target(link, owner)
                if found is None:
                    if not str(link.get("/A", {}).get("/URI", "")).startswith("file:"):
                        kept.append(reference)
                    continue
                place = self.places.get(found) or self.places.get((found[0], ""))
                _, bottom, _, top = map(float, link["/Rect"])
                if place is None or abs(top - bottom) < HIDDEN_PT:
                    continue
                link.pop("/A", None)
                link[NameObject("/Dest")] = self.at(*place)
                kept.append(reference)
                inner += 1
            sheet[NameObject("/Annots")] = kept
        return inner

    def at(self, sheet: int, top: float) -> ArrayObject:
        """A destination: a sheet and a height on it."""
        where = self.writer.pages[sheet].indirect_reference
        rest = (NameObject("/XYZ"), NullObject(), FloatObject(top), NullObject())
        return ArrayObject([where, *rest])

    def bookmark(self, parts: list[Part], printed: dict[str, Printed]) -> None:
        """Bookmarks for parts, pages and sections."""
        for part in parts:
            group = self.mark(part.caption, (part.pages[0], ""))
            for name in part.pages:
                (_, _, title), *sections = printed[name].headings
                page = self.mark(title, (name, ""), group)
                for _, anchor, text in sections:
                    self.mark(text, (name, anchor), page)

    def mark(self, title: str, place: tuple[str, str], parent=None):
        """One bookmark, folded; returns it, so that others can stand below it."""
        sheet, top = self.places[place]
        return self.writer.add_outline_item(
            title=title,
            page_number=sheet,
            parent=parent,
            fit=Fit.xyz(top=top),
            is_open=False,
        )

    def stamp(self, numbers: Path) -> None:
        """Lay the printed numbers over the sheets."""
        over = PdfReader(numbers).pages
        if len(over) != len(self.owners):
            raise ValueError(f"{len(self.owners)} sheets, but {len(over)} numbers")
        both = zip(self.writer.pages, over, strict=True)
        for index, (sheet, number) in enumerate(both):
            lay(self.writer, sheet, number, f"Number{index}")

    def write(self, path: Path, title: str, author: str) -> None:
        """Write the file, each object once."""
        self.writer.add_metadata({"/Title": title, "/Author": author})
        root = self.writer.root_object
        root[NameObject("/Lang")] = TextStringObject("en")
        root[NameObject("/PageMode")] = NameObject("/UseOutlines")
        self.writer.compress_identical_objects(remove_unreferenced=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.writer.write(path)


def lay(writer: PdfWriter, sheet: PageObject, over: PageObject, call: str) -> None:
    """Draw one page over another, as a form called ``call``: nothing is unpacked."""
    form = DecodedStreamObject()
    form.set_data(over.get_contents().get_data())
    form[NameObject("/Type")] = NameObject("/XObject")
    form[NameObject("/Subtype")] = NameObject("/Form")
    form[NameObject("/BBox")] = over.mediabox
    form[NameObject("/Resources")] = over["/Resources"].clone(writer)
    name, resources = NameObject(f"/{call}"), sheet["/Resources"].get_object()
    forms = resources.setdefault(NameObject("/XObject"), DictionaryObject())
    forms.get_object()[name] = writer._add_object(form.flate_encode())
    before, after = DecodedStreamObject(), DecodedStreamObject()
    before.set_data(b"q\n")
    after.set_data(f"\nQ q {name} Do Q\n".encode())
    own = sheet["/Contents"]
    own = own if isinstance(own, ArrayObject) else [sheet.raw_get("/Contents")]
    ends = [writer._add_object(stream) for stream in (before, after)]
    sheet[NameObject("/Contents")] = ArrayObject([ends[0], *own, ends[1]])
