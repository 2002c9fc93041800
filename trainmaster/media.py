"""How large images, histograms, texts and tables of a trial may be: what the SDK keeps to and the server checks."""

from __future__ import annotations

KINDS = ("image", "histogram", "text", "table")

NAME_CHARACTERS = 128
CAPTION_CHARACTERS = 500
#: of one image as a file
IMAGE_BYTES = 5_000_000
#: a small file can unpack to a picture that no browser can hold
IMAGE_PIXELS = 25_000_000
#: of one name at one step
IMAGES_PER_NAME = 64
BINS = 64
#: of histograms that others have made, as in TensorBoard's files
MOST_BINS = 512
TEXT_CHARACTERS = 100_000
COLUMNS, ROWS, CELL_CHARACTERS = 50, 1_000, 500
TABLE_BYTES = 1_000_000
