"""The cache: whole files or none, whatever happens to the connection or to the process."""

import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import time

import pytest
from server import publisher
from written import put, random_bytes

from tickgp.data.locate import DatasetUnavailableError, find_files
from tickgp.data.publishers import Source

FILES = {"a.bin": random_bytes(300_000).tobytes(), "b.bin": b"small"}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def source(url: str, files: dict[str, bytes] = FILES) -> Source:
    return Source({f"set/{name}": sha256(content) for name, content in files.items()}, url)


def in_cache(cache) -> list[str]:
    return sorted(path.name for path in cache.rglob("*") if path.is_file())


def test_files_come_once(cache, capfd):
    with publisher(FILES) as url:
        paths = find_files(source(url))
    assert [path.read_bytes() for path in paths] == list(FILES.values())
    assert in_cache(cache) == ["a.bin", "b.bin"]
    assert find_files(source(url)) == paths  # the publisher has gone home
    assert "set/a.bin" in capfd.readouterr().err


def test_the_users_folders_come_first(cache, tmp_path, monkeypatch):
    given, variable = tmp_path / "given", tmp_path / "variable"
    put(variable / "set" / "a.bin", b"mine")
    put(variable / "set" / "b.bin", b"mine")
    put(given / "set" / "b.bin", b"given")
    monkeypatch.setenv("TICKGP_DATA", str(variable))
    paths = find_files(source("http://127.0.0.1:9/"), given)
    assert paths == [variable / "set" / "a.bin", given / "set" / "b.bin"]
    assert not cache.exists()


def test_a_folder_that_was_recorded_is_searched_after_the_one_given(tmp_path, monkeypatch):
    given, recorded, variable = tmp_path / "given", tmp_path / "recorded", tmp_path / "variable"
    for folder, names in ((given, "a"), (recorded, "ab"), (variable, "abc")):
        for name in names:
            put(folder / "set" / f"{name}.bin", b"mine")
    monkeypatch.setenv("TICKGP_DATA", str(variable))
    wanted, gone = source("http://127.0.0.1:9/", dict.fromkeys(("a.bin", "b.bin", "c.bin"), b"")), tmp_path / "gone"
    found = lambda data_dir: [path.parents[1].name for path in find_files(wanted, data_dir)]
    assert found((given, recorded)) == ["given", "recorded", "variable"]
    assert found((None, gone, recorded)) == ["recorded", "recorded", "variable"]
    assert found((given, None)) == ["given", "variable", "variable"]
    with pytest.raises(ValueError, match=r"the data folder is .*gone, which is not a folder"):
        find_files(wanted, (gone, recorded))


def test_unpacked_files_serve_as_well(tmp_path):
    path = put(tmp_path / "set" / "a.idx", b"plain")
    assert find_files(Source({"set/a.idx.gz": ""}, "http://127.0.0.1:9/"), tmp_path) == [path]


def test_a_folder_that_is_not_there(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"the data folder is .*none, which is not a folder"):
        find_files(source(""), tmp_path / "none")
    monkeypatch.setenv("TICKGP_DATA", str(tmp_path / "none"))
    with pytest.raises(ValueError, match=r"\$TICKGP_DATA is .*none, which is not a folder"):
        find_files(source(""))


def test_a_broken_file_in_the_cache_is_fetched_again(cache):
    put(cache / "set" / "a.bin", b"broken")
    with publisher(FILES) as url:
        paths = find_files(source(url))
    assert paths[0].read_bytes() == FILES["a.bin"]


def assert_one_error(cache, source, reason):
    """One error that names the files, the folder and the variable; and nothing stays behind."""
    with pytest.raises(DatasetUnavailableError, match=reason) as error:
        find_files(source)
    for words in (*source.files, str(cache), "--data-dir", "$TICKGP_DATA"):
        assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert in_cache(cache) == []


def test_no_network(cache):
    assert_one_error(cache, source("https://publisher.invalid/"), "ProxyError at https://publisher")


def test_refused(cache):
    assert_one_error(cache, source("http://127.0.0.1:9/"), "ConnectionError at http://127")


def test_not_found(cache):
    with publisher({}) as url:
        assert_one_error(cache, source(url), "404")


def test_wrong_checksum(cache):
    with publisher({name: content[::-1] + b"!" for name, content in FILES.items()}) as url:
        assert_one_error(cache, source(url), "wrong sha256")


def test_cut_in_the_middle(cache):
    with publisher(FILES, cut=100_000) as url:
        assert_one_error(cache, source(url), f"Error at {url}")


def test_what_came_before_the_failure_stays(cache):
    files = {"first": b"whole", "second": bytes(1000)}
    with publisher(files, cut=500) as url, pytest.raises(DatasetUnavailableError, match="set/second"):
        find_files(source(url, files))
    assert in_cache(cache) == ["first"]


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(put(tmp_path / "file", b"")))
    with publisher(FILES) as url, pytest.raises(DatasetUnavailableError, match="Not a directory"):
        find_files(source(url))


def archive(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(f"set/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def archived(url: str, packed: bytes) -> Source:
    return Source(source("").files, url + "all.tar.gz", archive=sha256(packed))


def test_archive(cache):
    packed = archive({**FILES, "readme.html": b"not asked for"})
    with publisher({"all.tar.gz": packed}) as url:
        paths = find_files(archived(url, packed))
    assert [path.read_bytes() for path in paths] == list(FILES.values())
    assert in_cache(cache) == ["a.bin", "b.bin"]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"b.bin": FILES["b.bin"]}, "no file set/a.bin"),
        ({**FILES, "a.bin": b"other"}, "wrong sha256"),
    ],
)
def test_wrong_archive(cache, files, reason):
    packed = archive(files)
    with publisher({"all.tar.gz": packed}) as url:
        assert_one_error(cache, archived(url, packed), reason)


def wait_for(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.01)


CHILD = """
import sys
from tickgp.data.locate import find_files
from tickgp.data.publishers import Source
find_files(Source({"set/a.bin": sys.argv[2]}, sys.argv[1]))
"""


def test_kill_in_the_middle(cache):
    """The part that a killed process leaves is never taken for the file, and is cleared away later."""
    with publisher(FILES, cut=100_000, stall=True) as url:
        child = subprocess.Popen([sys.executable, "-c", CHILD, url, sha256(FILES["a.bin"])], stderr=subprocess.DEVNULL)
        wait_for(lambda: any(path.stat().st_size for path in cache.rglob("*.part")))
        child.send_signal(signal.SIGKILL)
        child.wait()
    (part,) = cache.rglob("*.part")
    assert in_cache(cache) == [part.name]
    os.utime(part, (0, 0))
    with publisher(FILES) as url:
        paths = find_files(source(url))
    assert [path.read_bytes() for path in paths] == list(FILES.values())
    assert in_cache(cache) == ["a.bin", "b.bin"]


def test_a_download_of_another_process_is_left_alone(cache):
    part = put(cache / "set" / ".another.part", b"growing")
    with publisher(FILES) as url:
        find_files(source(url))
    assert part.exists()
