//! Showing what the engine answers: once, or again whenever it changes.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::commands::Context;
use crate::engine::Engine;
use crate::failure::Result;
use crate::output;
use crate::patience::Patience;
use crate::waits::Progress;

/// How often it is looked whether something has changed.
const EVERY: Duration = Duration::from_secs(2);

/// Clears a terminal and begins at its top.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// For lists and infos.
#[derive(Args, Clone, Copy, Debug)]
pub struct Watch {
    /// Show it again whenever it changes, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

/// For lists of what people of an organization share.
#[derive(Args, Clone, Copy, Debug)]
pub struct Listing {
    /// Those of the whole organization
    #[arg(long, alias = "organization")]
    pub(crate) org: bool,
    #[command(flatten)]
    pub(crate) watch: Watch,
}

impl Listing {
    /// What is asked for then, so many at a time.
    pub(crate) fn query(self, limit: u32) -> [(&'static str, String); 2] {
        [("include_org", self.org.to_string()), ("limit", limit.to_string())]
    }
}

/// Shows an answer: to programs as it is, to people in the words of `render`.
pub(crate) fn once(ctx: &Context<'_>, body: &Value, render: impl Fn(&Value) -> String) -> Result<()> {
    if ctx.options.json { output::print_json(body) } else { output::print(&render(body)) }
}

/// What is asked of the engine.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    path: &'a str,
    query: &'a [(&'a str, String)],
    /// The name of the list that the answer is, all pages of which are wanted.
    list: Option<&'a str>,
}

impl<'a> Question<'a> {
    /// About one thing.
    pub(crate) fn of(path: &'a str) -> Self {
        Question { path, query: &[], list: None }
    }

    /// About the first of many.
    pub(crate) fn part(path: &'a str, query: &'a [(&'a str, String)]) -> Self {
        Question { path, query, list: None }
    }

    /// About all that there are.
    pub(crate) fn list(path: &'a str, query: &'a [(&'a str, String)], name: &'a str) -> Self {
        Question { path, query, list: Some(name) }
    }

    async fn ask(self, engine: &Engine) -> Result<Value> {
        match self.list {
            Some(name) => engine.list(self.path, self.query, name).await,
            None => engine.get(self.path, self.query).await,
        }
    }
}

/// Shows the answer to a question, and goes on asking if that is wanted.
pub(crate) async fn answer(
    ctx: &Context<'_>,
    watch: Watch,
    question: Question<'_>,
    render: impl Fn(&Value) -> String,
) -> Result<()> {
    let mut before = question.ask(&ctx.engine).await?;
    if !watch.watch {
        return once(ctx, &before, render);
    }
    let is_terminal = ctx.surroundings.width.is_some() && !ctx.options.json;
    let show = |body: &Value| {
        if is_terminal { output::print(&format!("{CLEAR}{}", render(body))) } else { once(ctx, body, &render) }
    };
    show(&before)?;
    let mut patience = Patience::default();
    patience.worked();
    loop {
        let asked = async {
            tokio::time::sleep(EVERY).await;
            question.ask(&ctx.engine.silent()).await
        };
        let asked = tokio::select! {
            biased;
            // It was asked for until then.
            () = ctx.interrupts.pressed() => return Ok(()),
            asked = asked => asked,
        };
        match asked {
            Ok(now) => {
                patience.worked();
                if now != before {
                    show(&now)?;
                    before = now;
                }
            }
            Err(failure) => patience.bear(failure, &Progress::new(ctx)).await?,
        }
    }
}
