import torch.nn.functional as F

from op_numbers import case, f32, i32


def embedding(c, ids):
    return F.embedding(ids, c["weight"])


case("embedding", "tokens", {"vocabulary": 7, "width": 5}, [i32(6, below=7)], embedding, parameters={"weight": (7, 5)})
case("embedding", "one id", {"vocabulary": 3, "width": 4}, [i32(below=3)], embedding, parameters={"weight": (3, 4)},
     samples=5)
case("embedding", "wide rows of two dimensions", {"vocabulary": 4, "width": 300}, [i32(3, 2, below=4)], embedding,
     parameters={"weight": (4, 300)}, samples=1)


def dropped_rows(c, ids):
    factors = c.dropout(c.attributes["row_drop"], c.attributes["vocabulary"], 1)[0]
    return F.embedding(ids, c["weight"] * factors)


case("embedding", "dropped rows", {"vocabulary": 9, "width": 70, "row_drop": 0.4}, [i32(7, below=9)], dropped_rows,
     parameters={"weight": (9, 70)}, samples=3)
case("positions", "a shorter text", {"context": 6}, [f32(4, 5)], lambda c, x: x + c["weight"][:4],
     parameters={"weight": (6, 5)}, samples=3)
