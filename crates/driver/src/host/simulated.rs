//! GPUs that are declared and do not exist, for demonstrations and tests: `8xH100` or `8xH100,2xL40S`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tarn_model::capacity::Gpu;

const MOST: u32 = 1024;

/// Declared GPUs, by model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Simulated {
    groups: Vec<(u32, String)>,
}

/// Why a text does not declare GPUs; each variant shows the part that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It is not a number, an `x` and a model.
    #[error("simulated GPUs look like 8xH100 or 8xH100,2xL40S, and not like {0:?}")]
    Form(String),
    /// The number is zero or too large.
    #[error("{0:?} must declare between 1 and 1024 GPUs")]
    Count(String),
    /// The model cannot be the name of a type.
    #[error("the model in {0:?} must be 1 to 16 of the characters A-Z and 0-9")]
    Model(String),
    /// A model is declared in two places.
    #[error("the GPUs of model {0} are declared twice; add up the numbers")]
    Twice(String),
}

impl Simulated {
    /// The devices, with ids such as `simulated-H100-0`.
    pub fn gpus(&self) -> Vec<Gpu> {
        let device =
            |model: &String, n| Gpu { id: format!("simulated-{model}-{n}"), model: model.clone(), simulated: true };
        self.groups.iter().flat_map(|(count, model)| (0..*count).map(move |n| device(model, n))).collect()
    }
}

impl FromStr for Simulated {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let mut groups: Vec<(u32, String)> = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (count, model) = parse_group(part)?;
            if groups.iter().any(|(_, other)| *other == model) {
                return Err(Malformed::Twice(model));
            }
            groups.push((count, model));
        }
        Ok(Simulated { groups })
    }
}

fn parse_group(part: &str) -> Result<(u32, String), Malformed> {
    let (digits, model) = part.split_once('x').ok_or_else(|| Malformed::Form(part.into()))?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Malformed::Form(part.into()));
    }
    let count = digits.parse().ok().filter(|count| (1..=MOST).contains(count));
    let count = count.ok_or_else(|| Malformed::Count(part.into()))?;
    let fits = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    if !(1..=16).contains(&model.len()) || !model.bytes().all(fits) {
        return Err(Malformed::Model(part.into()));
    }
    Ok((count, model.into()))
}

impl fmt::Display for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (count, model)) in self.groups.iter().enumerate() {
            write!(f, "{}{count}x{model}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl TryFrom<String> for Simulated {
    type Error = Malformed;

    fn try_from(text: String) -> Result<Self, Malformed> {
        text.parse()
    }
}

impl From<Simulated> for String {
    fn from(simulated: Simulated) -> String {
        simulated.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declaration_round_trips() {
        for text in ["8xH100", "1xA", "1024xABCDEFGHIJKLMNOP", "8xH100,2xL40S"] {
            assert_eq!(text.parse::<Simulated>().unwrap().to_string(), text);
        }
        assert_eq!("08xH100, 2xL40S".parse::<Simulated>().unwrap().to_string(), "8xH100,2xL40S");
        let gpus = "1xH100,2xL40S".parse::<Simulated>().unwrap().gpus();
        let shown: Vec<_> = gpus.iter().map(|gpu| (gpu.id.as_str(), gpu.model.as_str(), gpu.simulated)).collect();
        assert_eq!(
            shown,
            [
                ("simulated-H100-0", "H100", true),
                ("simulated-L40S-0", "L40S", true),
                ("simulated-L40S-1", "L40S", true)
            ]
        );
    }

    #[test]
    fn invalid_declarations_are_refused() {
        for text in
            ["", ",", "8", "H100", "xH100", "-1xH100", "+1xH100", "1.5xH100", "8xH100,", "8XH100", "8 xH100", "٣xH100"]
        {
            assert!(matches!(text.parse::<Simulated>(), Err(Malformed::Form(_))), "{text:?}");
        }
        for text in ["0xH100", "1025xH100", "99999999999999999999xH100"] {
            assert!(matches!(text.parse::<Simulated>(), Err(Malformed::Count(_))), "{text:?}");
        }
        for text in ["8x", "8xh100", "8xH 100", "8xH-100", "8xABCDEFGHIJKLMNOPQ", "8xÄ", "8xH100\0"] {
            assert!(matches!(text.parse::<Simulated>(), Err(Malformed::Model(_))), "{text:?}");
        }
        assert_eq!("1xH100,2xH100".parse::<Simulated>(), Err(Malformed::Twice("H100".into())));
    }
}
