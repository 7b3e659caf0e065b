from op_numbers import case, f32


def element(c, x):
    return x * c.dropout(c.attributes["probability"], x[0, ..., 0].numel(), x.shape[-1]).reshape(x.shape)


def locked(c, x):
    rest = x[:, :1]
    mask = c.dropout(c.attributes["probability"], rest[0, ..., 0].numel(), x.shape[-1])
    return x * mask.reshape(rest.shape)


case("dropout", "rows", {"probability": 0.3}, [f32(5, 70)], element, samples=3)
case("dropout", "a vector", {"probability": 0.5}, [f32(19)], element)
case("dropout", "an image", {"probability": 0.25}, [f32(9, 8, 3)], element)
case("dropout", "nothing", {"probability": 0.0}, [f32(3, 4)], element)
case("dropout", "locked", {"probability": 0.3, "kind": "locked"}, [f32(5, 21)], locked, samples=3)
case("dropout", "locked maps", {"probability": 0.3, "kind": "locked"}, [f32(3, 4, 5)], locked)
