//! Refuses programs whose nesting could exhaust the stack, which the library uses without a limit when it reads, compiles and runs them.
//!
//! Pure, on the text, and without recursion of its own, so that no text can do harm here. Nesting is estimated from above: every
//! operator and every opening word may be a level, and every definition may call all those before it. Definitions that call
//! themselves are not looked at here: `depth.rs` stops them while they run.

use std::str::Chars;

/// LIMIT: nesting of a program, as counted here. A level costs up to 10 KiB of stack in a build without optimisation, and the
/// threads that compile and apply filters have 8 MiB. The longest filters that were seen have some 40 steps.
const MAX_DEPTH: usize = 300;

/// How many levels a call stands for: the definitions of the library call each other.
const CALL: usize = 4;

const TOO_DEEP: &str = "the program is nested too deeply or too long; make it shorter";

/// Words that open something which the next words stand in.
const OPENING: [&str; 17] = [
    "if", "then", "elif", "else", "try", "catch", "reduce", "foreach", "def", "label", "as", "and",
    "or", "not", "import", "include", "__loc__",
];

pub(super) fn check(text: &str) -> Result<(), &'static str> {
    if depth(text) > MAX_DEPTH {
        return Err(TOO_DEEP);
    }
    Ok(())
}

/// An open bracket, the program itself, or a text in quotes.
struct Frame {
    /// `"` for a text.
    opened_by: char,
    /// Levels that the next words stand in.
    count: usize,
    /// The deepest that was seen since words last stood in none, and before that.
    deepest: usize,
    /// A definition was begun, so that a semicolon ends it.
    defines: bool,
}

impl Frame {
    fn new(opened_by: char, count: usize) -> Frame {
        Frame {
            opened_by,
            count,
            deepest: count,
            defines: false,
        }
    }
}

fn depth(text: &str) -> usize {
    let mut frames = vec![Frame::new(' ', 0)];
    let mut word = String::new();
    // Keys of a path follow each other without an operator; each is a level when the program runs.
    let mut keys = 0_usize;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let is_text = frames.last().is_some_and(|frame| frame.opened_by == '"');
        if is_text {
            match (letter, letter == '\\') {
                ('"', _) => close(&mut frames),
                (_, true) => match letters.next() {
                    Some('(') => frames.push(Frame::new('(', 1)),
                    _ => continue,
                },
                _ => continue,
            }
            continue;
        }
        if letter.is_alphanumeric() || letter == '_' {
            word.push(letter);
            continue;
        }
        let is_call = letter == '(' && !word.is_empty();
        let opening = OPENING.contains(&word.as_str());
        let outside: usize = frames.iter().map(|frame| frame.count).sum();
        let Some(frame) = frames.last_mut() else {
            break;
        };
        frame.defines |= word == "def";
        frame.count += usize::from(opening);
        word.clear();
        match letter {
            '.' | '[' => keys += 1,
            '|' | ',' | ';' | '=' | '+' | '-' | '*' | '/' | '%' | '<' | '>' => keys = 0,
            _ => {}
        }
        match letter {
            '#' => skip_comment(&mut letters),
            '|' | '+' | '-' | '*' | '/' | '%' | '=' | '<' | '>' | '?' | '!' => frame.count += 1,
            // What a definition holds may stand in every definition behind it.
            ';' if frame.defines => frame.count = frame.deepest.max(frame.count),
            ';' => frame.count = 1,
            ',' if frame.opened_by == '{' => frame.count = 1,
            ',' => frame.count += 1,
            _ => {}
        }
        frame.deepest = frame.deepest.max(frame.count);
        match letter {
            '"' => frames.push(Frame::new('"', 1)),
            '(' if is_call => frames.push(Frame::new('(', CALL)),
            '(' | '[' | '{' => frames.push(Frame::new(letter, 1)),
            ')' | ']' | '}' => close(&mut frames),
            _ => {}
        }
        // Nobody needs to know how much deeper it is.
        if outside + keys > MAX_DEPTH {
            return outside + keys;
        }
    }
    while frames.len() > 1 {
        close(&mut frames);
    }
    frames.first().map_or(0, |frame| frame.deepest)
}

/// The last frame ends. The program itself does not.
fn close(frames: &mut Vec<Frame>) {
    if frames.len() > 1
        && let Some(inner) = frames.pop()
        && let Some(frame) = frames.last_mut()
    {
        frame.deepest = frame.deepest.max(frame.count + inner.deepest);
    }
}

/// To the end of the line, or of a later one: an odd number of backslashes before it makes the comment longer.
fn skip_comment(letters: &mut Chars<'_>) {
    loop {
        let (line, rest) = letters.as_str().split_once('\n').unwrap_or_default();
        let line = line.strip_suffix('\r').unwrap_or(line);
        *letters = rest.chars();
        if line.len().wrapping_sub(line.trim_end_matches('\\').len()) % 2 == 0 {
            return;
        }
    }
}
