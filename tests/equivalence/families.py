"""Networks that are named after the functions that make them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.tflite_builder import NetBuilder
from tests.tflite_writer import Value

# From a builder and its input to the network's outputs.
Family = Callable[[NetBuilder, Value], tuple[Value, ...]]


@dataclass(frozen=True)
class Families:
    """A collection of networks with an input of 1x8x8x8; ``makers`` has them by name."""

    makers: dict[str, Family] = field(default_factory=dict)

    def add(self, make: Family) -> Family:
        """Name a network after its function."""
        self.makers[make.__name__] = make
        return make

    def network(self, name: str, seed: int) -> NetBuilder:
        """Return the builder of a whole network."""
        net = NetBuilder(seed=seed)
        net.output(*self.makers[name](net, net.input((1, 8, 8, 8))))
        return net
