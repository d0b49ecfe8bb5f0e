"""Golden frames: reviewed thumbnails of the rendered environments.

    python tests/environments/native/golden.py SHEET.png [NAME …]

renders the named environments, or all, into SHEET.png for review, and stores their
thumbnails.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from test_every_native import (
    COMPLETE,
    GOLDEN,
    build_for_rendering,
    thumbnail,
    two_states,
)

COLUMNS, SIZE, TITLE = 6, (300, 200), 16


def main(sheet, *names):
    thumbnails = dict(np.load(GOLDEN)) if GOLDEN.exists() else {}
    names = names or COMPLETE
    rows = -(-len(names) // COLUMNS)
    image = Image.new("RGB", (COLUMNS * SIZE[0], rows * (SIZE[1] + TITLE)))
    for index, name in enumerate(names):
        frame = build_for_rendering(name).render(two_states(name)[1])
        thumbnails[name] = thumbnail(frame)
        row, column = divmod(index, COLUMNS)
        corner = (column * SIZE[0], row * (SIZE[1] + TITLE))
        frame_image = Image.fromarray(frame)
        frame_image.thumbnail(SIZE)
        image.paste(frame_image, (corner[0], corner[1] + TITLE))
        ImageDraw.Draw(image).text((corner[0] + 4, corner[1] + 2), name)
    np.savez_compressed(
        GOLDEN, **{name: thumbnails[name] for name in sorted(thumbnails)}
    )
    image.save(sheet)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
