"""Golden pictures: what environments draw, kept small, once somebody has looked at it.

    python tests/environments/native/golden.py SHEET.png [NAME …]

draws those named, or all, into SHEET.png, to be looked at, and keeps them.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from test_every_native import GOLDEN, OURS, drawn, shrunk, two_states

COLUMNS, SIZE, TITLE = 6, (300, 200), 16


def main(sheet, *names):
    kept = dict(np.load(GOLDEN)) if GOLDEN.exists() else {}
    names = names or OURS
    rows = -(-len(names) // COLUMNS)
    image = Image.new("RGB", (COLUMNS * SIZE[0], rows * (SIZE[1] + TITLE)))
    for place, name in enumerate(names):
        frame = drawn(name).render(two_states(name)[1])
        kept[name] = shrunk(frame)
        row, column = divmod(place, COLUMNS)
        corner = (column * SIZE[0], row * (SIZE[1] + TITLE))
        picture = Image.fromarray(frame)
        picture.thumbnail(SIZE)
        image.paste(picture, (corner[0], corner[1] + TITLE))
        ImageDraw.Draw(image).text((corner[0] + 4, corner[1] + 2), name)
    np.savez_compressed(GOLDEN, **{name: kept[name] for name in sorted(kept)})
    image.save(sheet)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
