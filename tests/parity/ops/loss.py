import torch
import torch.nn.functional as F

from op_numbers import case, f32, i32


def cross_entropy(c, logits, targets):
    flat, ids = logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)
    ignored = c.attributes.get("ignore", -1)
    loss = F.cross_entropy(flat, ids, ignore_index=ignored, label_smoothing=c.attributes.get("label_smoothing", 0.0))
    return (loss if (ids != ignored).any() else flat.sum() * 0.0), logits


def mse(c, predictions, targets):
    return F.mse_loss(predictions, targets), predictions


case("cross_entropy", "classes", {}, [f32(10, scale=4), i32(below=10)], cross_entropy, samples=5)
case("cross_entropy", "tokens", {}, [f32(70, 19, scale=4), i32(70, below=19)], cross_entropy)
case("cross_entropy", "padding", {"ignore": 0}, [f32(12, 5), i32(12, below=5)], cross_entropy)
case("cross_entropy", "nothing but padding", {"ignore": 0}, [f32(3, 5), i32(3, below=1)], cross_entropy)
case("cross_entropy", "smooth labels", {"label_smoothing": 0.1}, [f32(3, 2, 21), i32(3, 2, below=21)], cross_entropy)
case("cross_entropy", "smooth labels and padding", {"label_smoothing": 0.25, "ignore": 2},
     [f32(9, 5, scale=2), i32(9, below=5)], cross_entropy)
case("mse", "rows", {}, [f32(3, 7), f32(3, 7)], mse, samples=3)
case("mse", "numbers", {}, [f32(1), f32(1)], mse, samples=4)
