import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest


@pytest.fixture(autouse=True)
def drawing():
    """Draw to memory as many figures as a test likes, and leave none behind."""
    before = mpl.get_backend()
    plt.switch_backend("Agg")
    with mpl.rc_context({"figure.max_open_warning": 0}):
        yield
    plt.close("all")
    plt.switch_backend(before)
