//! Reads the SQL texts from the source of the store. A text is a literal, `concat!` of texts, or a macro of the store that
//! makes one of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the source consists of, as far as texts are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Text(String),
    Word(String),
    Mark(char),
}

use Token::{Mark, Text, Word};

/// A macro with one rule: the names of its parameters, and what it stands for.
#[derive(Clone, Debug)]
struct Macro {
    params: Vec<String>,
    body: Vec<Token>,
}

/// The macros of each file.
type Macros = BTreeMap<PathBuf, BTreeMap<String, Macro>>;

/// Returns the SQL texts of all files below a directory, each with its file.
pub(super) fn sql_texts(root: &Path) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    collect_files(root, &mut files);
    let sources: BTreeMap<PathBuf, Vec<Token>> =
        files.into_iter().map(|file| (file.clone(), tokens(&std::fs::read_to_string(&file).unwrap()))).collect();
    let macros: Macros = sources.iter().map(|(file, source)| (file.clone(), macros_of(source))).collect();
    let mut found = Vec::new();
    for (file, source) in &sources {
        let scope = Scope { file, macros: &macros };
        let texts = scope.texts(&without_macros(source));
        found.extend(texts.into_iter().filter(|text| is_sql(text)).map(|text| (file.clone(), text)));
    }
    found
}

fn is_sql(text: &str) -> bool {
    let verb = text.split_whitespace().next().unwrap_or_default();
    matches!(verb, "select" | "insert" | "update" | "delete" | "with") && text.split_whitespace().count() > 2
}

fn collect_files(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Where the texts of a file are read.
struct Scope<'a> {
    file: &'a Path,
    macros: &'a Macros,
}

impl Scope<'_> {
    /// Returns the texts among these tokens.
    fn texts(&self, tokens: &[Token]) -> Vec<String> {
        let (mut found, mut at) = (Vec::new(), 0);
        while at < tokens.len() {
            if let Some((name, inner, end)) = call_at(tokens, at) {
                match self.find_macro(name) {
                    _ if name == "concat" => found.push(self.concatenated(inner)),
                    Some(called) => found.extend(self.texts(&called.expand(inner))),
                    None => found.extend(self.texts(inner)),
                }
                at = end;
                continue;
            }
            if let Text(text) = &tokens[at] {
                found.push(text.clone());
            }
            at += 1;
        }
        found
    }

    /// Returns the text that the arguments of `concat!` make.
    fn concatenated(&self, tokens: &[Token]) -> String {
        let (mut whole, mut at) = (String::new(), 0);
        while at < tokens.len() {
            if let Some((name, inner, end)) = call_at(tokens, at) {
                let part = match self.find_macro(name) {
                    Some(called) => self.concatenated(&called.expand(inner)),
                    None => self.concatenated(inner),
                };
                whole.push_str(&part);
                at = end;
                continue;
            }
            match &tokens[at] {
                Text(text) => whole.push_str(text),
                Mark(',') => {}
                other => panic!("{}: concat! of {other:?}", self.file.display()),
            }
            at += 1;
        }
        whole
    }

    /// Finds a macro in this file, in those above it, or anywhere else if only one has its name.
    fn find_macro(&self, name: &str) -> Option<&Macro> {
        let above =
            self.file.ancestors().skip(1).flat_map(|folder| [folder.join("mod.rs"), folder.with_extension("rs")]);
        let near = std::iter::once(self.file.to_owned()).chain(above);
        let found = near.filter_map(|file| self.macros.get(&file)?.get(name)).next();
        let mut all = self.macros.values().filter_map(|macros| macros.get(name));
        found.or_else(|| all.next().filter(|_| all.next().is_none()))
    }
}

impl Macro {
    /// Returns the body with these arguments.
    fn expand(&self, arguments: &[Token]) -> Vec<Token> {
        let arguments = if self.params.len() > 1 { split_arguments(arguments) } else { vec![arguments.to_vec()] };
        let (mut expanded, mut at) = (Vec::new(), 0);
        while at < self.body.len() {
            match (&self.body[at], self.body.get(at + 1)) {
                (Mark('$'), Some(Word(name))) => {
                    let argument = self.params.iter().position(|param| param == name).and_then(|at| arguments.get(at));
                    expanded.extend(argument.cloned().unwrap_or_default());
                    at += 2;
                }
                // A repetition has the whole of its only parameter.
                (Mark('$'), Some(Mark('('))) => {
                    expanded.extend(arguments[0].clone());
                    at = closing(&self.body, at + 1) + 2;
                }
                (token, _) => {
                    expanded.push(token.clone());
                    at += 1;
                }
            }
        }
        expanded
    }
}

fn split_arguments(tokens: &[Token]) -> Vec<Vec<Token>> {
    let (mut depth, mut arguments) = (0, vec![Vec::new()]);
    for token in tokens {
        match token {
            Mark('(' | '[' | '{') => depth += 1,
            Mark(')' | ']' | '}') => depth -= 1,
            Mark(',') if depth == 0 => {
                arguments.push(Vec::new());
                continue;
            }
            _ => {}
        }
        arguments.last_mut().unwrap().push(token.clone());
    }
    arguments
}

/// Returns the call of a macro that begins here: its name, its arguments and where it ends.
fn call_at(tokens: &[Token], at: usize) -> Option<(&str, &[Token], usize)> {
    match (tokens.get(at)?, tokens.get(at + 1)?, tokens.get(at + 2)?) {
        (Word(name), Mark('!'), Mark('(' | '[' | '{')) => {
            let end = closing(tokens, at + 2);
            Some((name, &tokens[at + 3..end], end + 1))
        }
        _ => None,
    }
}

/// Returns where the bracket closes that opens here.
fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token {
            Mark('(' | '[' | '{') => depth += 1,
            Mark(')' | ']' | '}') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    panic!("a bracket is not closed");
}

/// Returns where each definition of a macro begins and ends.
fn definitions(tokens: &[Token]) -> Vec<(usize, usize)> {
    let begins = |at: &usize| tokens[*at] == Word("macro_rules".into()) && tokens.get(at + 1) == Some(&Mark('!'));
    (0..tokens.len()).filter(begins).map(|at| (at, closing(tokens, at + 3))).collect()
}

fn without_macros(tokens: &[Token]) -> Vec<Token> {
    let inside = definitions(tokens);
    let outside = |at: usize| !inside.iter().any(|(from, to)| (*from..=*to).contains(&at));
    tokens.iter().enumerate().filter(|(at, _)| outside(*at)).map(|(_, token)| token.clone()).collect()
}

/// Returns the macros of a file that have one rule; the others make no texts.
fn macros_of(tokens: &[Token]) -> BTreeMap<String, Macro> {
    let mut found = BTreeMap::new();
    for (from, to) in definitions(tokens) {
        let Word(name) = &tokens[from + 2] else { panic!("a macro without a name") };
        let pattern = (from + 4, closing(tokens, from + 4));
        let body = (pattern.1 + 3, closing(tokens, pattern.1 + 3));
        if to > body.1 + 2 {
            continue;
        }
        let names = tokens[pattern.0..pattern.1].windows(3).filter_map(|three| match three {
            [Mark('$'), Word(name), Mark(':')] => Some(name.clone()),
            _ => None,
        });
        let body = tokens[body.0 + 1..body.1].to_vec();
        found.insert(name.clone(), Macro { params: names.collect(), body });
    }
    found
}

/// Splits a source into tokens, without comments, characters and lifetimes.
fn tokens(source: &str) -> Vec<Token> {
    let (mut found, mut rest) = (Vec::new(), source);
    while let Some(first) = rest.chars().next() {
        if rest.starts_with("//") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        } else if first == '"' {
            let (text, after) = text_at(rest);
            found.push(Text(text));
            rest = after;
        } else if first == '\'' {
            // 'a' and '\n' are characters, 'a is a lifetime.
            let is_escaped = rest[1..].starts_with('\\');
            let end = rest[1 + usize::from(is_escaped)..].char_indices().nth(1).map_or(rest.len(), |(at, _)| at + 1);
            let end = end + usize::from(is_escaped);
            rest = if rest[end..].starts_with('\'') { &rest[end + 1..] } else { &rest[1..] };
        } else if first.is_alphanumeric() || first == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            found.push(Word(rest[..end].to_owned()));
            rest = &rest[end..];
        } else {
            if !first.is_whitespace() {
                found.push(Mark(first));
            }
            rest = &rest[first.len_utf8()..];
        }
    }
    found
}

/// Reads the literal that begins here; returns what follows it, too.
fn text_at(source: &str) -> (String, &str) {
    let (mut text, mut chars) = (String::new(), source.char_indices().skip(1));
    while let Some((at, character)) = chars.next() {
        match character {
            '"' => return (text, &source[at + 1..]),
            '\\' => match chars.next() {
                // The line continues behind its indentation.
                Some((newline, '\n')) => {
                    let next =
                        source[newline..].find(|c: char| !c.is_whitespace()).map_or(source.len(), |at| newline + at);
                    while chars.clone().next().is_some_and(|(at, _)| at < next) {
                        chars.next();
                    }
                }
                Some((_, 'n')) => text.push('\n'),
                Some((_, other)) => text.push(other),
                None => {}
            },
            other => text.push(other),
        }
    }
    panic!("a text does not end");
}
