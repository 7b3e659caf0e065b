from op_numbers import case, f32

for name, shape in {"small": (2, 3, 4), "one_pixel": (1, 1, 5), "several_tiles": (5, 7, 18)}.items():
    case("channels_first", name, {}, [f32(*shape)], compute=lambda c, x: x.permute(0, 3, 1, 2))
