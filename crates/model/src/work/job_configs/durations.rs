//! Durations as users write them.

/// Returns the seconds of a text such as `90`, `90s`, `30m`, `2h`, `1d` or `1h30m`.
pub(super) fn parse_seconds(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    let mut sum = 0_u64;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().ok()?;
        let mut after = rest[digits..].chars();
        let unit = match after.next() {
            Some('s') => 1,
            Some('m') => 60,
            Some('h') => 3600,
            Some('d') => 86_400,
            // A single number is seconds, but not after another component.
            None if rest.len() == text.trim().len() => 1,
            Some(_) | None => return None,
        };
        sum = sum.checked_add(number.checked_mul(unit)?)?;
        rest = after.as_str().trim_start();
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::parse_seconds;

    #[test]
    fn durations_parse_or_not() {
        let cases = [
            ("90", Some(90)),
            ("90s", Some(90)),
            ("30m", Some(1800)),
            ("2h", Some(7200)),
            ("1d", Some(86_400)),
            ("1h30m", Some(5400)),
            (" 1h 30m ", Some(5400)),
            ("", None),
            ("h", None),
            ("1h30", None),
            ("1.5h", None),
            ("-1s", None),
            ("2w", None),
            ("99999999999999999999s", None),
            ("999999999999999999d", None),
            ("1é", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_seconds(text), expected, "{text:?}");
        }
    }
}
