"""Sources: local files of every kind, and what is wrong with some of them."""

import json
import lzma
import subprocess
import sys

import pyarrow
import pyarrow.parquet
import pytest

import stacklm.train.sources as sources
from stacklm.train import (
    Written,
    hugging_face,
    json_lines,
    moby_dick,
    parquet_files,
    rows_of,
    text_files,
    write_shards,
)

TEXTS = ["Call me Ishmael.", "Einige Jahre früher –", "白鲸\nzwei Zeilen"]


@pytest.fixture(autouse=True)
def _no_network(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def jsonl(tmp_path):
    path = tmp_path / "corpus.jsonl"
    rows = [{"id": i, "text": text} for i, text in enumerate(TEXTS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def parquet(tmp_path):
    path = tmp_path / "corpus.parquet"
    table = pyarrow.table({"id": [0, 1, 2], "text": TEXTS})
    pyarrow.parquet.write_table(table, path, row_group_size=2)
    return path


def test_every_source_gives_the_same_documents(tmp_path, jsonl, parquet):
    files = [tmp_path / f"{i}.txt" for i in range(3)]
    for path, text in zip(files, TEXTS, strict=True):
        path.write_bytes(text.encode())
    cache = {"cache_dir": str(tmp_path / "cache")}
    found = {
        "text": text_files(*files),
        "jsonl": json_lines(jsonl),
        "parquet": parquet_files(parquet),
        "hf json": hugging_face("json", data_files=str(jsonl), **cache),
        "hf parquet": hugging_face("parquet", data_files=str(parquet), **cache),
        "rows": rows_of({"text": text} for text in TEXTS),
    }
    reference = None
    for name, pieces in found.items():
        folder = tmp_path / name
        assert write_shards(pieces, folder) == Written(58, 3, 0, 1), name
        content = (folder / "shard_00000.bin").read_bytes()
        assert content == (reference := reference or content), name


def test_hugging_face_streams(jsonl, monkeypatch):
    import datasets

    asked = {}

    def load_dataset(path, **options):
        asked.update(options, path=path)
        return ({"text": str(i)} for i in iter(int, 1))  # endless

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    pieces = hugging_face("HuggingFaceFW/fineweb-edu", name="sample-10BT")
    assert [next(pieces).text for _ in range(3)] == ["0"] * 3
    assert asked == {
        "path": "HuggingFaceFW/fineweb-edu",
        "name": "sample-10BT",
        "split": "train",
        "streaming": True,
    }


def test_several_files_are_read_in_order(jsonl, parquet):
    assert [p.text for p in json_lines(jsonl, jsonl)] == TEXTS * 2
    assert [p.text for p in parquet_files(parquet, parquet)] == TEXTS * 2


def test_another_field(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"content": "x", "text": 5}')
    assert [p.text for p in json_lines(path, field="content")] == ["x"]


@pytest.mark.parametrize(
    "text",
    [
        "line one\nline two\r\n\r\nlast",
        "é" * 50,  # no line end; cuts fall between characters
        "𝄞é白a" * 20,
        "\n" * 30,
        "a",
        "a" * 40 + "\n" + "b" * 40 + "\n",
    ],
)
@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 16])
def test_text_comes_back_from_its_pieces(tmp_path, monkeypatch, text, chunk):
    monkeypatch.setattr(sources, "CHUNK", chunk)
    path = tmp_path / "text.txt"
    path.write_bytes(text.encode())
    pieces = list(text_files(path, path))
    assert "".join(p.text for p in pieces) == text * 2
    assert all(p.text for p in pieces)
    begins = [i for i, p in enumerate(pieces) if p.begins]
    assert begins == [0, len(pieces) // 2]


def test_pieces_end_with_a_line_where_there_are_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "CHUNK", 64)
    path = tmp_path / "text.txt"
    path.write_text("a line of text\n" * 40)
    pieces = [p.text for p in text_files(path)]
    assert len(pieces) > 5
    assert all(text.endswith("\n") for text in pieces)


@pytest.mark.parametrize("chunk", [4, 7, 2**20])
def test_text_that_is_not_utf8_is_named_with_its_offset(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(sources, "CHUNK", chunk)
    path = tmp_path / "latin.txt"
    path.write_bytes("Zeile 1\ndrei é\nfr".encode() + b"\xfcher\n")
    with pytest.raises(ValueError, match=r"latin\.txt, offset 18: byte 0xfc is not"):
        write_shards(text_files(path), tmp_path / "out")
    path.write_bytes(b"\x80" * 100)
    with pytest.raises(ValueError, match=r"latin\.txt, offset 0: byte 0x80 is not"):
        list(text_files(path))
    path.write_bytes("abc\né".encode()[:-1])
    with pytest.raises(ValueError, match=r"latin\.txt, offset 4: byte 0xc3 is not"):
        list(text_files(path))


def test_an_empty_file_is_named(tmp_path):
    (tmp_path / "empty.txt").touch()
    message = r"empty\.txt, offset 0: an empty document"
    with pytest.raises(ValueError, match=message):
        write_shards(text_files(tmp_path / "empty.txt"), tmp_path / "out")
    with pytest.raises(ValueError, match="no documents to write"):
        write_shards(json_lines(tmp_path / "empty.txt"), tmp_path / "out")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{broken", "line 2, offset 14: no JSON"),
        (b"", "line 2, offset 14: no JSON"),
        (b'["text"]', "line 2, offset 14: no object but list"),
        (b'{"txt": "a", "id": 1}', "offset 14: no field 'text'; found txt, id"),
        (b"{}", "offset 14: no field 'text'; found nothing"),
        (b'{"text": null}', "offset 14: field 'text' must be a string, got NoneType"),
        (b'{"text": "\xff"}', "offset 24: byte 0xff is not UTF-8"),
        (b'{"text": ""}', "line 2, offset 14: an empty document"),
        (rb'{"text": "a\ud800"}', "line 2, offset 14: character 1 is half of a surr"),
    ],
)
def test_a_broken_line_is_named_with_line_and_offset(tmp_path, line, message):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b'{"text": "a"}\n' + line + b"\n")
    with pytest.raises(ValueError, match=r"bad\.jsonl, " + f"(line 2, )?{message}"):
        write_shards(json_lines(path), tmp_path / "out")


def test_broken_parquet_is_named(tmp_path, parquet):
    content = parquet.read_bytes()
    parquet.write_bytes(content[:-20])
    with pytest.raises(ValueError, match=r"corpus\.parquet is no sound Parquet file"):
        list(parquet_files(parquet))
    table = pyarrow.table({"text": ["a", None], "id": [1, 2]})
    pyarrow.parquet.write_table(table, parquet)
    with pytest.raises(ValueError, match=r"corpus\.parquet, row 1: field 'text' must"):
        list(parquet_files(parquet))
    with pytest.raises(ValueError, match="no column 'body'; it has text, id"):
        list(parquet_files(parquet, field="body"))
    with pytest.raises(FileNotFoundError):
        list(parquet_files(tmp_path / "missing.parquet"))


def test_errors_of_a_data_set_say_at_which_row():
    def rows():
        yield {"text": "a"}
        raise RuntimeError("the line went dead")

    with pytest.raises(RuntimeError, match="went dead") as caught:
        list(rows_of(rows(), name="web"))
    assert caught.value.__notes__ == ["while reading web, row 1"]
    with pytest.raises(ValueError, match="web, row 0: no field 'text'; found a"):
        list(rows_of([{"a": 1}], name="web"))


def test_moby_dick_is_whole_and_checked(monkeypatch, tmp_path):
    text = moby_dick()
    assert (len(text), len(text.encode())) == (1_190_317, 1_204_997)
    assert text.count("Call me Ishmael.") == 1
    texts = tmp_path / "texts"
    texts.mkdir()
    monkeypatch.setattr(sources.resources, "files", lambda _: tmp_path)
    for content, message in (
        (lzma.compress(text[:-1].encode()), "holds another text"),
        (b"no xz", "is damaged"),
    ):
        (texts / "moby_dick.txt.xz").write_bytes(content)
        with pytest.raises(ValueError, match=rf"moby_dick\.txt\.xz {message}"):
            moby_dick()


def test_without_the_extra_all_but_its_parts_work():
    code = (
        "import sys\n"
        "for name in ('tokenizers', 'pyarrow', 'datasets', 'pyarrow.parquet'):\n"
        "    sys.modules[name] = None\n"
        "from stacklm.train import *\n"
        "assert len(open_tokens('moby-dick')) == 1084497\n"
        "for use in (lambda: train_bpe(['a']), lambda: BPETokenizer.load('a'),\n"
        "            lambda: next(parquet_files('a')),\n"
        "            lambda: next(hugging_face('a'))):\n"
        "    try:\n"
        "        use()\n"
        "    except ImportError as error:\n"
        "        print(error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    lines = run.stdout.splitlines()
    assert [line.split(" (")[0] for line in lines] == [
        "BPE needs the library tokenizers",
        "BPE needs the library tokenizers",
        "Parquet needs the library pyarrow",
        "a Hugging Face data set needs the library datasets",
    ]
    assert all(line.endswith('pip install "stacklm[data]"') for line in lines)
