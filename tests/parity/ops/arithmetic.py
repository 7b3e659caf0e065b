from op_numbers import case, f32

case("add", "two", {}, [f32(3, 7)] * 2, lambda c, a, b: a + b)
case("add", "sixteen", {}, [f32(5)] * 16, lambda c, *x: sum(x))
case("mul", "rows", {}, [f32(3, 7)] * 2, lambda c, a, b: a * b)
case("scale", "down", {"factor": -0.375}, [f32(3, 7)], lambda c, x: -0.375 * x)
