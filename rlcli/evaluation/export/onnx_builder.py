"""ONNX builder: the nodes and constants of an ONNX model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlcli.evaluation.export.graph import BATCH, Graph, Value

_BATCH_NAME = "batch"


class ModelBuilder:
    """Collects the nodes and constants of a model."""

    def __init__(self, onnx: Any, graph: Graph) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._onnx = onnx
        self._graph = graph
        self._constants: dict[Any, str] = {}
        self._batch_size = ""

    def read(self, value: Value) -> str:
        """The name of a value; adds it if it is a constant."""
        if value.name in self._graph.constants:
            return self.constant(self._graph.constants[value.name], value.name)
        return value.name

    def node(self, kind: str, inputs: Sequence[str], name: str = "", **options) -> str:
        """Adds a node and returns the name of its output."""
        name = name or f"n{len(self.nodes)}"
        make = self._onnx.helper.make_node
        self.nodes.append(make(kind, list(inputs), [name], **options))
        return name

    def constant(self, array: Any, name: str = "", dtype: Any = None) -> str:
        """The name of a constant, stored once."""
        array = np.asarray(array, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = name or f"c{len(self._constants)}"
            tensor = self._onnx.numpy_helper.from_array(array, self._constants[key])
            self.initializers.append(tensor)
        return self._constants[key]

    def like(self, number: float, value: Value) -> str:
        """A number in the dtype of a value."""
        return self.constant(number, dtype=value.dtype)

    def sizes(self, shape: Sequence[int]) -> str:
        """A shape as a tensor, with the size of the batch."""
        parts, known = [], []
        for size in shape:
            if size != BATCH:
                known.append(size)
                continue
            parts += [self.constant(known, dtype=np.int64)] if known else []
            parts, known = [*parts, self._batch()], []
        parts += [self.constant(known, dtype=np.int64)] if known or not parts else []
        return self.node("Concat", parts, axis=0) if len(parts) > 1 else parts[0]

    def reshape(self, source: str, shape: Sequence[int]) -> str:
        """A `Reshape`, where −1 is the size that remains."""
        return self.node("Reshape", [source, self.constant(shape, dtype=np.int64)])

    def cast(self, source: str, dtype: Any) -> str:
        """A `Cast` to a dtype of NumPy."""
        kind = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.node("Cast", [source], to=kind)

    def describe(self, name: str, value: Value) -> Any:
        """An input or output of the model."""
        shape = [_BATCH_NAME if size == BATCH else size for size in value.shape]
        kind = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
        return self._onnx.helper.make_tensor_value_info(name, kind, shape)

    def _batch(self) -> str:
        """The size of the batch, `[1]`."""
        if not self._batch_size:
            observation = next(iter(self._graph.inputs))
            self._batch_size = self.node("Shape", [observation], start=0, end=1)
        return self._batch_size
