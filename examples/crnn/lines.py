"""Images of lines of digits, drawn with a font of 3 x 5 dots.

An image has 10 rows, 32 columns, 3 to 5 digits, and noise. The images are made on the spot from a
random state, so that every worker has its own endless supply.
"""

import numpy as np

HEIGHT, WIDTH = 10, 32
DIGITS = 10
_FONT = """
###  #  ### ### # # ### ### ### ### ###
# # ##    #   # # # #   #     # # # # #
# #  #  ### ### ### ### ###   # ### ###
# #  #  #     #   #   # # #   # # #   #
### ### ### ###   # ### ###   # ### ###
"""
_ROWS = [row.ljust(4 * DIGITS) for row in _FONT.splitlines()[1:]]
_GLYPHS = np.array(
    [[[row[4 * d + x] == "#" for x in range(3)] for row in _ROWS] for d in range(DIGITS)],
    np.float32,
)


def line(random):
    """One image [HEIGHT, WIDTH] and the digits on it."""
    image = np.zeros([HEIGHT, WIDTH], np.float32)
    text = random.randint(DIGITS, size=random.randint(3, 6))
    left = random.randint(1, 4)
    for digit in text:
        top = random.randint(1, HEIGHT - 5)
        image[top : top + 5, left : left + 3] = _GLYPHS[digit]
        left += 3 + random.randint(2, 4)
    return image + 0.1 * random.randn(HEIGHT, WIDTH).astype(np.float32), text


def batch(random, size):
    """Images [size, HEIGHT, WIDTH] and their texts as the three parts of a sparse tensor."""
    images, texts = zip(*[line(random) for _ in range(size)])
    places = [(row, column) for row, text in enumerate(texts) for column in range(len(text))]
    shape = [size, max(len(text) for text in texts)]
    return np.stack(images), (
        np.array(places, np.int64),
        np.concatenate(texts).astype(np.int32),
        np.array(shape, np.int64),
    )
