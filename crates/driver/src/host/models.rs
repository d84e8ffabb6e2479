//! The names of GPU models, as in the names of types: `1xH100`.

/// Words in a full name that are not part of the model: vendor, form factor, edition.
const NOISE: [&str; 17] = [
    "NVIDIA",
    "TESLA",
    "QUADRO",
    "GEFORCE",
    "GRAPHICS",
    "GPU",
    "LAPTOP",
    "GENERATION",
    "BLACKWELL",
    "WORKSTATION",
    "SERVER",
    "EDITION",
    "PCIE",
    "NVL",
    "AC",
    "CEC",
    "OAM",
];

const LONGEST: usize = 16;

/// Derives the short name of a model from the name that NVML reports: `NVIDIA H100 80GB HBM3` is `H100`. At most 16
/// upper-case letters and digits; `GPU` where nothing else is left.
pub fn short_model_name(name: &str) -> String {
    let upper = name.to_ascii_uppercase();
    let words = upper.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !is_noise(word));
    let model: String = words.flat_map(str::chars).take(LONGEST).collect();
    if model.is_empty() { "GPU".into() } else { model }
}

/// Besides the listed words: the size and kind of the memory, `80GB` and `HBM3`, and the socket, `SXM4`.
fn is_noise(word: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    NOISE.contains(&word)
        || word.strip_suffix("GB").is_some_and(digits)
        || word.starts_with("HBM")
        || word.strip_prefix("SXM").is_some_and(|rest| rest.is_empty() || digits(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_have_short_names() {
        let table = [
            ("NVIDIA H100 80GB HBM3", "H100"),
            ("NVIDIA H100 PCIe", "H100"),
            ("NVIDIA H100 NVL", "H100"),
            ("NVIDIA H200", "H200"),
            ("NVIDIA B200", "B200"),
            ("NVIDIA B300 SXM6 AC", "B300"),
            ("NVIDIA GH200 480GB", "GH200"),
            ("NVIDIA GB200", "GB200"),
            ("NVIDIA A100-SXM4-40GB", "A100"),
            ("NVIDIA A100 80GB PCIe", "A100"),
            ("Tesla V100-SXM2-16GB", "V100"),
            ("Tesla T4", "T4"),
            ("NVIDIA A10G", "A10G"),
            ("NVIDIA L4", "L4"),
            ("NVIDIA L40S", "L40S"),
            ("NVIDIA GeForce RTX 4090", "RTX4090"),
            ("NVIDIA GeForce RTX 4070 Ti SUPER", "RTX4070TISUPER"),
            ("NVIDIA GeForce RTX 3080 Laptop GPU", "RTX3080"),
            ("NVIDIA RTX A6000", "RTXA6000"),
            ("NVIDIA RTX 6000 Ada Generation", "RTX6000ADA"),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTXPRO6000"),
            ("Some Thing Of A Very Long Name", "SOMETHINGOFAVERY"),
            ("NVIDIA Graphics", "GPU"),
            ("", "GPU"),
            ("é\0", "GPU"),
        ];
        for (name, model) in table {
            assert_eq!(short_model_name(name), model, "{name}");
        }
    }
}
