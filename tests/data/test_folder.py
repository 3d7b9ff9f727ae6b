"""Folders of images: which files count, in which order, and what is said of those that cannot."""

import shutil

import numpy as np
import pytest
from PIL import Image
from written import put, random_bytes

from tickgp.data.folder import read_folder
from tickgp.errors import UsageError


def picture(path, level=0, size=(4, 4)):
    """A picture of one grey level, or of one colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB" if isinstance(level, tuple) else "L", size[::-1], level).save(path)


@pytest.fixture
def pets(tmp_path):
    """cat: levels 110, 111, 112; dog: 120, 121. Written against the order of their names."""
    for name, level in (
        ("dog/b.png", 121),
        ("dog/a.png", 120),
        ("cat/3.png", 112),
        ("cat/10.png", 110),
        ("cat/2.png", 111),
    ):
        picture(tmp_path / name, level)
    return tmp_path


def test_classes_and_files_by_name(pets):
    contents = read_folder(pets)
    images, labels = contents.train.images, contents.train.labels
    assert contents.class_names == ("cat", "dog")
    assert contents.test is None
    assert contents.notes == ()
    assert images.dtype == np.uint8
    assert images.shape == (5, 4, 4, 1)
    assert images[:, 0, 0, 0].tolist() == [110, 111, 112, 120, 121]
    assert labels.tolist() == [0, 0, 0, 1, 1]


def test_what_is_passed_over(pets):
    for name in (".DS_Store", "cat/.hidden.png", "cat/Thumbs.db", "dog/notes.TXT", "labels.csv", ".git/config"):
        put(pets / name, b"nothing")
    assert len(read_folder(pets).train.images) == 5


def test_links_are_followed(pets):
    (pets / "wolf").symlink_to(pets / "dog", target_is_directory=True)
    (pets / "cat" / "linked.png").symlink_to(pets / "dog" / "a.png")
    assert read_folder(pets).train.labels.tolist() == [0, 0, 0, 0, 1, 1, 2, 2]


def test_one_colour_picture_makes_all_colour(pets):
    picture(pets / "dog" / "c.png", (1, 2, 3))
    images = read_folder(pets).train.images
    assert images.shape == (6, 4, 4, 3)
    assert images[0, 0, 0].tolist() == [110, 110, 110]
    assert images[5, 0, 0].tolist() == [1, 2, 3]


def test_train_and_test(pets, tmp_path_factory):
    root = tmp_path_factory.mktemp("both")
    (root / "train").symlink_to(pets)
    picture(root / "test" / "dog" / "a.png", (9, 8, 7))
    picture(root / "test" / "cat" / "a.png", 30)
    contents = read_folder(root)
    assert contents.train.images.shape == (5, 4, 4, 3)
    assert contents.test.images.shape == (2, 4, 4, 3)
    assert contents.test.labels.tolist() == [0, 1]


def test_a_class_without_test_images_is_noted(pets, tmp_path_factory):
    root = tmp_path_factory.mktemp("both")
    (root / "train").symlink_to(pets)
    picture(root / "test" / "dog" / "a.png")
    picture(root / "test" / "dog" / "b.png")
    contents = read_folder(root)
    assert contents.test.labels.tolist() == [1, 1]
    assert contents.notes == ("class 'cat' has no test images",)


def test_a_class_that_train_lacks(pets, tmp_path_factory):
    root = tmp_path_factory.mktemp("both")
    (root / "train").symlink_to(pets)
    picture(root / "test" / "dog" / "a.png")
    picture(root / "test" / "emu" / "a.png")
    with pytest.raises(ValueError, match=r"emu is a class that .*train lacks"):
        read_folder(root)


def test_trains_and_tests_can_be_classes(tmp_path):
    picture(tmp_path / "train" / "a.png")
    picture(tmp_path / "test" / "a.png")
    assert read_folder(tmp_path).class_names == ("test", "train")


def test_different_sizes_need_a_choice(pets):
    picture(pets / "dog" / "wide.png", 5, size=(6, 90))
    with pytest.raises(ValueError, match=r"2 sizes, among them 4×4 and 6×90 .*--image-size 8 "):
        read_folder(pets)
    assert read_folder(pets, image_size=(3, 2)).train.images.shape == (6, 3, 2, 1)
    Image.fromarray(np.repeat(np.uint8([[10, 200, 10]]), 3, axis=0)).resize((9, 3), 0).save(pets / "dog" / "wide.png")
    padded, cropped = (read_folder(pets, image_size=(3, 3), fit=fit).train.images[-1] for fit in ("pad", "crop"))
    assert (padded[0] == 10).all()
    assert (cropped > 150).all()


@pytest.mark.parametrize(("sides", "suggested"), [((1, 20, 21, 40, 50), 21), ((1, 300, 400), 32), ((1, 2, 500), 8)])
def test_a_size_that_fits_most_images_is_suggested(tmp_path, sides, suggested):
    for i, side in enumerate(sides):
        picture(tmp_path / "ab"[i % 2] / f"{i}.png", size=(side, side + 10))
    with pytest.raises(ValueError, match=rf"--image-size {suggested} .*image_size={suggested}\)"):
        read_folder(tmp_path)


def test_large_images_need_a_choice(tmp_path):
    for name in ("a/1.png", "b/1.png"):
        picture(tmp_path / name, size=(100, 129))
    with pytest.raises(
        ValueError, match=r"are 100×129 pixels, more than .*--image-size 32 \(in Python: image_size=32\)"
    ):
        read_folder(tmp_path)
    assert read_folder(tmp_path, image_size=(100, 129)).train.images.shape == (2, 100, 129, 1)
    for name in ("a/1.png", "b/1.png"):
        picture(tmp_path / name, size=(100, 128))
    assert read_folder(tmp_path).train.images.shape == (2, 100, 128, 1)


def test_more_than_fits_into_memory_is_refused_before_it_is_read(pets):
    with pytest.raises(UsageError, match=r"to read 5 images of 1000000×1000000 pixels takes 18,626 GiB of memory, and"):
        read_folder(pets, image_size=(10**6, 10**6))


def test_an_unreadable_image_is_named(pets):
    put(pets / "cat" / "5.jpg", b"no image")
    with pytest.raises(ValueError, match=r"cat/5\.jpg cannot be read .* --skip-bad-images"):
        read_folder(pets)


def test_unreadable_images_are_left_out_and_counted(pets):
    put(pets / "cat" / "5.jpg", b"no image")
    put(pets / "dog" / "half.png", (pets / "dog" / "a.png").read_bytes()[:40])
    contents = read_folder(pets, skip_bad_images=True)
    assert len(contents.train.images) == 5
    (note,) = contents.notes
    assert note.startswith("2 of 7 images could not be read and were left out: ")
    assert "5.jpg" in note
    assert "half.png" in note


def test_a_class_of_bad_images_only(pets):
    put(pets / "emu" / "a.png", b"")
    with pytest.raises(ValueError, match=r"none of the 1 images in .*emu can be read"):
        read_folder(pets, skip_bad_images=True)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("emu/.keep", "emu has no images; add some, or remove the folder"),
        ("emu/notes.txt", "emu has no images"),
        ("stray.png", r"stray\.png lies beside the class folders"),
        ("cat/old/a.png", "cat/old is a folder inside of what should be one class"),
    ],
)
def test_misplaced_files_are_named(pets, name, words):
    put(pets / name, random_bytes(3).tobytes())
    with pytest.raises(ValueError, match=words):
        read_folder(pets)


def parts(root, *names):
    """Folders of these names, each with cats and dogs; its place among the names is the grey level."""
    for level, part in enumerate(names):
        for name in ("cat", "dog"):
            picture(root / part / name / "a.png", level)


@pytest.mark.parametrize(
    "names", [("train", "test", "val"), ("Train", "TEST", "Valid"), ("train", "test", "validation")]
)
def test_train_test_and_validation(tmp_path, names):
    parts(tmp_path, *names)
    contents = read_folder(tmp_path)
    found = (contents.train, contents.test, contents.validation)
    assert [part.images[:, 0, 0, 0].tolist() for part in found] == [[0, 0], [1, 1], [2, 2]]
    assert [part.labels.tolist() for part in found] == [[0, 1]] * 3
    assert contents.validation.names == (f"{names[2]}/cat/a.png", f"{names[2]}/dog/a.png")


def test_classes_of_validation_are_those_of_training(tmp_path):
    parts(tmp_path, "train", "test", "val")
    (tmp_path / "val" / "cat" / "a.png").unlink()
    (tmp_path / "val" / "cat").rmdir()
    assert read_folder(tmp_path).notes == (
        "class 'cat' has no validation images, so that nothing is promised for new images of it",
    )
    picture(tmp_path / "val" / "emu" / "a.png")
    with pytest.raises(ValueError, match=r"val/emu is a class that .*train lacks"):
        read_folder(tmp_path)


def test_a_part_without_classes_is_named(tmp_path):
    parts(tmp_path, "train", "test")
    (tmp_path / "val").mkdir()
    with pytest.raises(UsageError, match=r"val has no class folders; give each class a folder"):
        read_folder(tmp_path)


def test_classes_without_test_images_cannot_be_chosen_alone(tmp_path):
    parts(tmp_path, "train", "test")
    picture(tmp_path / "train" / "emu" / "a.png")
    contents = read_folder(tmp_path)
    assert contents.only(("emu", "dog")).test.labels.tolist() == [1]
    shutil.rmtree(tmp_path / "test" / "dog")
    with pytest.raises(UsageError, match="no test image is of the classes emu, dog; add some, or name others"):
        read_folder(tmp_path).only(("emu", "dog"))


@pytest.mark.parametrize(
    ("names", "wrong"),
    [
        (("train", "val"), "but no test"),
        (("test", "val"), "but no train"),
        (("train",), "but no test"),
        (("train", "test", "extra"), "more than train and test"),
        (("train", "test", "val", "valid"), "more than train and test"),
    ],
)
def test_other_parts_are_refused(tmp_path, names, wrong):
    parts(tmp_path, *names)
    with pytest.raises(ValueError, match=rf"has the folders {', '.join(sorted(names))}, {wrong}.*and if you "):
        read_folder(tmp_path)


def test_one_class_is_not_enough(tmp_path):
    picture(tmp_path / "cat" / "a.png")
    with pytest.raises(ValueError, match="has 1 class folders; at least 2"):
        read_folder(tmp_path)


def test_no_folder(tmp_path):
    with pytest.raises(ValueError, match="there is no such folder"):
        read_folder(tmp_path / "nothing")
