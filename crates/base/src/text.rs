//! Text from guests, registries, clients and files: it may contain anything, and must not control a terminal or a log.

use std::borrow::Cow;

/// Returns an untrusted text for one line of a terminal, log, message or table: at most `max` characters, the last
/// of which is `…` if the text is longer. Line ends and tabs become spaces, and other [unsafe](is_unsafe) characters
/// U+FFFD.
pub fn plain(text: &str, max: usize) -> Cow<'_, str> {
    // Most texts are short and printable ASCII.
    if text.len() <= max && text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Cow::Borrowed(text);
    }
    let is_long = text.chars().nth(max).is_some();
    if !is_long && !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let shown = |c| match c {
        '\t' | '\n' | '\r' | '\u{2028}' | '\u{2029}' => ' ',
        c if is_unsafe(c) => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    let kept = if is_long { max.saturating_sub(1) } else { max };
    Cow::Owned(text.chars().take(kept).map(shown).chain(is_long.then_some('…')).take(max).collect())
}

/// Whether a character controls a terminal, ends a line, changes the direction of text, or is invisible and so can hide
/// text. The joiners U+200C and U+200D are safe: scripts and emoji need them.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unsafe_characters_are_replaced() {
        for (text, expected) in [
            ("a\u{1b}[2J\u{7f}\u{9b}1mb\r\n\tc é\u{a0}", "a\u{fffd}[2J\u{fffd}\u{fffd}1mb   c é\u{a0}"),
            ("\u{202e}gnp.exe\u{2066}\u{2069}", "\u{fffd}gnp.exe\u{fffd}\u{fffd}"),
            ("one\u{2028}two\u{2029}", "one two "),
            ("ro\u{200b}ot\u{feff}\u{e0041}", "ro\u{fffd}ot\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(plain(text, 100), expected);
        }
        let joined = "👩\u{200d}💻 می\u{200c}خواهم";
        assert!(matches!(plain(joined, 100), Cow::Borrowed(text) if text == joined));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        for (max, expected) in [(0, ""), (1, "…"), (3, "üü…"), (4, "üüüü"), (5, "üüüü")] {
            assert_eq!(plain("üüüü", max), expected);
        }
        assert_eq!(plain("abcd", 3), "ab…");
    }

    proptest! {
        #[test]
        fn output_is_plain_and_short(text in any::<String>(), odd in "[\\x00-\\x20\u{80}-\u{9f}\u{2000}-\u{2070}]*", max in 0..40usize) {
            let text = text + &odd;
            let shown = plain(&text, max);
            prop_assert!(shown.chars().count() <= max && !shown.contains(is_unsafe));
            prop_assert_eq!(shown.contains('…') || text.chars().count() <= max || max == 0, true);
            let is_plain = text.chars().count() <= max && !text.contains(is_unsafe);
            prop_assert_eq!(matches!(shown, Cow::Borrowed(same) if same == text), is_plain);
        }
    }
}
