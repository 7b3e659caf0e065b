"""Draws the ten digits in the fonts of Debian packages, as records for `data.records`.

    apt-get install python3-pil python3-numpy $(awk '/^(train|test) /{print $2}' examples/digits/fonts.txt)
    /usr/bin/python3 examples/digits/digits.py digits

writes digits/train and digits/test: images u8 [32, 32, 3] and labels i32. A digit has a random font, size, rotation, shear,
place and pair of colours, and noise. fonts.txt says which packages are for training and which for the test; digits/fonts.tsv
lists the font files that were used. The same packages and seed give the same files.
"""

import argparse
import pathlib
import subprocess
import sys

import numpy as np
from PIL import Image, ImageDraw, ImageFont

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))
from write_records import write_records  # noqa: E402

SIZE = 32
SCALE = 4  # glyphs are drawn larger and sampled down, so that their edges are smooth


def fonts_of(package):
    """The font files of an installed package, sorted."""
    listed = subprocess.run(["dpkg", "-L", package], capture_output=True, text=True)
    if listed.returncode != 0:
        sys.exit(f"digits: package {package} is not installed; apt-get install {package}")
    return sorted(path for path in listed.stdout.split("\n") if path.endswith((".ttf", ".otf")))


def digit(random, fonts, label):
    """One image, u8 [SIZE, SIZE, 3]."""
    large = SIZE * SCALE
    font = ImageFont.truetype(fonts[random.integers(len(fonts))], int(SCALE * random.uniform(17, 27)))
    glyph = Image.new("L", (large, large))
    ImageDraw.Draw(glyph).text((large / 2, large / 2), str(label), fill=255, font=font, anchor="mm")
    angle, shear = random.uniform(-0.25, 0.25), random.uniform(-0.2, 0.2)
    stretch = np.diag(random.uniform(0.85, 1.15, 2))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    matrix = stretch @ turn @ np.array([[1.0, shear], [0.0, 1.0]])
    centre = np.full(2, large / 2)
    offset = centre - matrix @ (centre + SCALE * random.uniform(-3, 3, 2))
    mapping = (*matrix[0], offset[0], *matrix[1], offset[1])
    mask = glyph.transform((large, large), Image.Transform.AFFINE, mapping, Image.Resampling.BILINEAR)
    ink = np.asarray(mask.resize((SIZE, SIZE), Image.Resampling.BOX), dtype=np.float32)[..., None] / 255
    back = random.uniform(0, 255, 3)
    fore = random.uniform(0, 255, 3)
    while abs(fore.mean() - back.mean()) < 60:  # readable also without colours
        fore = random.uniform(0, 255, 3)
    image = back + (fore - back) * ink + random.normal(0, 8, (SIZE, SIZE, 3))
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)


def digits(random, fonts, count):
    labels = random.permutation(np.arange(count, dtype=np.int32) % 10)
    return {"image": np.stack([digit(random, fonts, label) for label in labels]), "label": labels}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=pathlib.Path, help="is created")
    parser.add_argument("--train", type=int, default=20000, help="images to train on")
    parser.add_argument("--test", type=int, default=4000, help="images to test on")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rows = [line.split() for line in (HERE / "fonts.txt").read_text().splitlines() if not line.startswith("#")]
    split = {name: [font for side, package in rows if side == name for font in fonts_of(package)]
             for name in ("train", "test")}
    arguments.directory.mkdir(parents=True)
    for number, (name, count) in enumerate((("train", arguments.train), ("test", arguments.test))):
        random = np.random.default_rng([arguments.seed, number])
        write_records(arguments.directory / name, digits(random, split[name], count))
        print(f"{name}: {count} images in {len(split[name])} fonts")
    lines = [f"{name}\t{font}" for name, fonts in split.items() for font in fonts]
    (arguments.directory / "fonts.tsv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
