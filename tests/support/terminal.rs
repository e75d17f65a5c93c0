//! A terminal: a program runs behind a pseudo-terminal, and the test sees what a person would see on the screen.
//!
//! A few lines of Python hold the other end of the pseudo-terminal and keep every byte in a file; `Screen` draws that file from its
//! beginning whenever it is asked. It knows only what our program sends, and anything else fails the test.

use std::fs;
use std::path::PathBuf;
use std::str::Chars;

use rustix::process::Signal;

use super::{Env, Operator};

/// Arguments: rows, columns, the file, then the command. USR1 presses Ctrl-C.
const KEEPER: &str = r"
import fcntl, os, pty, signal, struct, sys, termios
rows, columns, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
child, master = pty.fork()
if child == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))
    os.execvp(sys.argv[4], sys.argv[4:])
signal.signal(signal.SIGUSR1, lambda *_: os.write(master, b'\x03'))
with open(path, 'wb', buffering=0) as written:
    while True:
        try:
            read = os.read(master, 65536)
        except OSError:
            break
        if not read:
            break
        written.write(read)
status = os.waitpid(child, 0)[1]
sys.exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))
";

/// What a shell does around a command: something stands on the screen before, and something comes after. The trap keeps it alive when
/// Ctrl-C reaches the whole foreground; the command itself gets the signal as usual.
const AROUND: &str = "trap : INT; echo before; \"$@\"; echo \"after $?\"";

pub(crate) struct Terminal {
    pub(crate) keeper: Operator,
    written: PathBuf,
    rows: usize,
    columns: usize,
}

impl Terminal {
    /// Runs the program with these arguments, on a screen of this size.
    pub(crate) fn run(env: &Env, (rows, columns): (usize, usize), arguments: &[&str]) -> Terminal {
        let written = env.write("terminal", "");
        let size = [rows.to_string(), columns.to_string()];
        let path = written.to_string_lossy();
        let program = env!("CARGO_BIN_EXE_shell-operator");
        let mut all = vec!["-c", KEEPER, &size[0], &size[1], &path];
        all.extend(["sh", "-c", AROUND, "sh", program]);
        all.extend(arguments);
        Terminal {
            keeper: env.spawn_program("python3", &all),
            written,
            rows,
            columns,
        }
    }

    pub(crate) fn press_ctrl_c(&self) {
        self.keeper.signal(Signal::USR1);
    }

    /// What is on the screen now.
    pub(crate) fn screen(&self) -> Screen {
        let bytes = fs::read(&self.written).unwrap();
        let mut screen = Screen::new(self.rows, self.columns);
        screen.write(&String::from_utf8_lossy(&bytes));
        screen
    }
}

/// The lines and the place of the cursor on one of the two screens that a terminal has.
#[derive(Clone, Debug, Default)]
struct Plane {
    lines: Vec<Vec<char>>,
    row: usize,
    column: usize,
}

#[derive(Debug)]
pub(crate) struct Screen {
    plane: Plane,
    /// The usual screen, while the other one is shown.
    usual: Option<Plane>,
    rows: usize,
    columns: usize,
    pub(crate) shows_cursor: bool,
    pub(crate) wraps: bool,
    /// Lines that have left the screen at its top.
    pub(crate) scrolled: usize,
}

impl Screen {
    pub(crate) fn new(rows: usize, columns: usize) -> Screen {
        Screen {
            plane: Plane::of(rows),
            usual: None,
            rows,
            columns,
            shows_cursor: true,
            wraps: true,
            scrolled: 0,
        }
    }

    pub(crate) fn is_other(&self) -> bool {
        self.usual.is_some()
    }

    /// Its lines from the top, without the empty ones at the end.
    pub(crate) fn lines(&self) -> Vec<String> {
        let lines = self.plane.lines.iter();
        let mut lines: Vec<String> = lines
            .map(|line| line.iter().collect::<String>().trim_end().to_owned())
            .collect();
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    }

    /// Whether a line has this text.
    pub(crate) fn has(&self, text: &str) -> bool {
        self.lines().iter().any(|line| line.contains(text))
    }

    pub(crate) fn write(&mut self, text: &str) {
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\u{1b}' => {
                    // The rest may still be on its way.
                    let Some(sequence) = sequence(&mut letters) else {
                        return;
                    };
                    self.obey(&sequence);
                }
                '\r' => self.plane.column = 0,
                '\n' => self.next_line(),
                letter => {
                    assert!(!letter.is_control(), "{letter:?} reached the screen");
                    self.put(letter);
                }
            }
        }
    }

    fn put(&mut self, letter: char) {
        if self.plane.column >= self.columns {
            if self.wraps {
                self.plane.column = 0;
                self.next_line();
            } else {
                self.plane.column = self.columns - 1;
            }
        }
        let (row, column) = (self.plane.row, self.plane.column);
        let line = &mut self.plane.lines[row];
        if line.len() <= column {
            line.resize(column + 1, ' ');
        }
        line[column] = letter;
        self.plane.column += 1;
    }

    fn next_line(&mut self) {
        if self.plane.row + 1 < self.rows {
            self.plane.row += 1;
            return;
        }
        self.plane.lines.remove(0);
        self.plane.lines.push(Vec::new());
        self.scrolled += 1;
    }

    fn obey(&mut self, sequence: &str) {
        let (row, column) = (self.plane.row, self.plane.column);
        match sequence {
            "[H" => (self.plane.row, self.plane.column) = (0, 0),
            "[K" => self.plane.lines[row].truncate(column),
            "[J" => {
                self.plane.lines[row].truncate(column);
                self.plane.lines[row + 1..].fill(Vec::new());
            }
            "[?1049h" => {
                let other = Plane::of(self.rows);
                self.usual = Some(std::mem::replace(&mut self.plane, other));
            }
            "[?1049l" => self.plane = self.usual.take().expect("the other screen"),
            "[?25h" => self.shows_cursor = true,
            "[?25l" => self.shows_cursor = false,
            "[?7h" => self.wraps = true,
            "[?7l" => self.wraps = false,
            other => panic!("the screen does not know {other:?}"),
        }
    }
}

impl Plane {
    fn of(rows: usize) -> Plane {
        Plane {
            lines: vec![Vec::new(); rows],
            ..Plane::default()
        }
    }
}

/// What follows an escape, up to its letter. `None`: it is not complete.
fn sequence(letters: &mut Chars<'_>) -> Option<String> {
    let mut sequence = String::new();
    loop {
        let letter = letters.next()?;
        sequence.push(letter);
        if letter.is_ascii_alphabetic() {
            return Some(sequence);
        }
    }
}
