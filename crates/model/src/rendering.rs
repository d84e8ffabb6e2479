//! Renders the state machines, the decisions about access and the events into pages of `docs/`, for the tests of the
//! modules that define them.

use crate::Refused;

/// The name of a transition and its function.
pub(crate) type Transition<S> = (&'static str, fn(S) -> Result<S, Refused>);

/// Renders the table of states and transitions into `docs/states/`. A changed rule fails here until the page is
/// regenerated with `UPDATE_STATES=1`, and so becomes a visible diff.
pub(crate) fn render_states<S: Clone>(
    noun: &str,
    states: &[S],
    name: fn(&S) -> &'static str,
    transitions: &[Transition<S>],
) {
    let mut page =
        format!("# States of a {noun}\n\nRendered by the tests of `crates/model`; do not edit.\n\n| state |");
    transitions.iter().for_each(|(verb, _)| page.push_str(&format!(" {verb} |")));
    page.push_str(&format!("\n|---|{}\n", "---|".repeat(transitions.len())));
    for state in states {
        page.push_str(&format!("| {} |", name(state)));
        for (_, transition) in transitions {
            match transition(state.clone()) {
                Ok(next) => page.push_str(&format!(" **{}** |", name(&next))),
                Err(refused) => page.push_str(&format!(" {} |", refused.code())),
            }
        }
        page.push('\n');
    }
    render_page(&format!("states/{noun}"), &page);
}

/// Compares a page of `docs/` with its rendered text, or writes it with `UPDATE_STATES=1`.
#[allow(clippy::disallowed_methods)]
pub(crate) fn render_page(name: &str, page: &str) {
    let path = format!("{}/../../docs/{name}.md", env!("CARGO_MANIFEST_DIR"));
    if std::env::var("UPDATE_STATES").is_ok() {
        std::fs::write(&path, page).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), page, "regenerate {path} with UPDATE_STATES=1");
}
