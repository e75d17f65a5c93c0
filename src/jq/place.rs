//! Native functions of ours: places in a value set, changed and deleted as jq does it, JSON read with a limit, texts repeated with one.
//!
//! On the thread that applies a filter. A value is changed in place where nobody else holds it. Everything that input can make
//! large or deep here has a limit, since filters run inside the operator and objects come from anybody.

use std::ops::Range;

use jaq_core::box_iter::box_once;
use jaq_core::data::JustLut;
use jaq_core::native::{Fun, bome, run, unary, v};
use jaq_core::{Bind, Cv, Error, Exn, ValR, ValT as _, ValXs};
use jaq_json::{Map, Num, Rc, Val};

use super::whole;

/// LIMIT: keys in a path. A result may be 128 levels deep and no deeper, so longer paths lead nowhere. The same
/// number is in `assign::DEFINITIONS`.
const MAX_PATH: usize = 256;

/// LIMIT: items of a list that is filled up with null to reach an index: 16 MiB. A list from the cluster has thousands.
const MAX_ITEMS: usize = 1_000_000;

/// LIMIT: bytes of a repeated text; an object of the cluster has 3 MiB at most.
const MAX_TEXT: usize = 16 * 1024 * 1024;

type Failure = Error<Val>;

/// Natives of jaq that are ours instead.
pub(super) const REPLACED: &[&str] = &["fromjson"];

pub(super) fn natives() -> impl Iterator<Item = Fun<JustLut<Val>>> {
    let change: Box<[Bind]> = Box::new([Bind::Var(()), Bind::Fun(())]);
    [
        run(("fromjson", v(0), |cv: Cv<'_, JustLut<Val>>| {
            bome(read(&cv.1))
        })),
        run(("__set", v(2), |mut cv: Cv<'_, JustLut<Val>>| {
            let (new, paths) = (cv.0.pop_var(), cv.0.pop_var());
            bome(set_all(cv.1, &paths, &new))
        })),
        run(("__delete", v(1), |cv: Cv<'_, JustLut<Val>>| {
            unary(cv, |value, paths| delete_all(value, &paths))
        })),
        run(("__times", v(2), |mut cv: Cv<'_, JustLut<Val>>| {
            let (right, left) = (cv.0.pop_var(), cv.0.pop_var());
            bome(times(left, right))
        })),
        run(("__change", change, |cv| change_all(cv))),
    ]
    .into_iter()
}

/// One JSON value. serde_json reads it, because its depth limit holds; jaq's own reader would overflow the stack.
fn read(text: &Val) -> ValR<Val> {
    let (Val::TStr(bytes) | Val::BStr(bytes)) = text else {
        return Err(Error::typ(text.clone(), "string"));
    };
    serde_json::from_slice(bytes).or_else(|error| {
        // jq takes `007` and `.5`, too, and `tonumber` comes here.
        let digits = String::from_utf8_lossy(bytes);
        let digits = digits.trim();
        let is_number = |letter: char| letter.is_ascii_digit() || ".eE+-".contains(letter);
        if digits.chars().all(is_number) && digits.parse::<f64>().is_ok() {
            return Val::from_num(digits);
        }
        Err(Error::str(format_args!("cannot be read as JSON: {error}")))
    })
}

fn times(left: Val, right: Val) -> ValR<Val> {
    if let (Val::TStr(text) | Val::BStr(text), Val::Num(times))
    | (Val::Num(times), Val::TStr(text) | Val::BStr(text)) = (&left, &right)
    {
        let times = integer(times).unwrap_or(0).unsigned_abs();
        if text.len().saturating_mul(times) > MAX_TEXT {
            return Err(Error::str("a text is repeated too often"));
        }
    }
    left * right
}

fn set_all(mut value: Val, paths: &Val, new: &Val) -> ValR<Val> {
    for path in list(paths)? {
        set(&mut value, keys(path)?, new.clone())?;
    }
    Ok(value)
}

fn delete_all(value: Val, paths: &Val) -> ValR<Val> {
    let mut sorted = Vec::new();
    for path in list(paths)? {
        sorted.push(keys(path)?);
    }
    sorted.sort();
    delete(value, &sorted)
}

/// Each place gets the first result for what is there; a place without a result is deleted in the end.
fn change_all<'a>(mut cv: Cv<'a, JustLut<Val>>) -> ValXs<'a, Val> {
    let ((change, state), paths) = (cv.0.pop_fun(), cv.0.pop_var());
    let mut value = cv.1;
    let mut changed = || {
        let mut gone = Vec::new();
        for path in list(&paths)? {
            let keys = keys(path)?;
            let old = get(&value, keys)?;
            match change.run((state.clone(), old)).next() {
                Some(new) => set(&mut value, keys, new?)?,
                None => gone.push(keys),
            }
        }
        gone.sort();
        Ok::<Val, Exn<'a, Val>>(delete(std::mem::take(&mut value), &gone)?)
    };
    box_once(changed())
}

fn list(value: &Val) -> Result<&[Val], Failure> {
    match value {
        Val::Arr(items) => Ok(items),
        other => Err(Error::typ(other.clone(), "array")),
    }
}

fn keys(path: &Val) -> Result<&[Val], Failure> {
    let keys = list(path)?;
    if keys.len() > MAX_PATH {
        return Err(Error::str(format_args!(
            "a path is longer than {MAX_PATH} keys"
        )));
    }
    Ok(keys)
}

fn get(value: &Val, path: &[Val]) -> ValR<Val> {
    let mut found = value.clone();
    for key in path {
        if !matches!(found, Val::Null) {
            found = found.index(key)?;
        }
    }
    Ok(found)
}

/// Puts a value where a path leads, and makes what is not there.
fn set(value: &mut Val, path: &[Val], new: Val) -> Result<(), Failure> {
    let Some((key, rest)) = path.split_first() else {
        *value = new;
        return Ok(());
    };
    let (Val::Obj(bounds), Val::Arr(_) | Val::Null) = (key, &*value) else {
        return set(child(value, key)?, rest, new);
    };
    let mut items = match std::mem::take(value) {
        Val::Arr(items) => Rc::unwrap_or_clone(items),
        _ => Vec::new(),
    };
    let range = part(bounds, items.len())?;
    let mut inner: Val = items
        .get(range.clone())
        .unwrap_or_default()
        .iter()
        .cloned()
        .collect();
    set(&mut inner, rest, new)?;
    let Val::Arr(inner) = inner else {
        return Err(Error::str("a part of an array can only become an array"));
    };
    items.splice(range, inner.iter().cloned());
    *value = Val::Arr(Rc::new(items));
    Ok(())
}

/// The place of a key; null becomes what can have such a key.
fn child<'v>(value: &'v mut Val, key: &Val) -> Result<&'v mut Val, Failure> {
    if matches!(value, Val::Null) {
        *value = match key {
            Val::TStr(_) | Val::BStr(_) => Val::obj(Map::default()),
            Val::Num(_) => Val::Arr(Rc::default()),
            _ => Val::Null,
        };
    }
    let wrong = |value: &Val| Error::index(value.clone(), key.clone());
    match (value, key) {
        (Val::Obj(entries), Val::TStr(_) | Val::BStr(_)) => Ok(Rc::make_mut(entries)
            .entry(key.clone())
            .or_insert(Val::Null)),
        (Val::Arr(items), Val::Num(number)) => {
            let far = || Error::str("the index of an array is out of bounds");
            let index = integer(number).ok_or_else(far)?;
            let index = wrapped(index, items.len()).ok_or_else(far)?;
            if index >= MAX_ITEMS.max(items.len()) {
                return Err(far());
            }
            let items = Rc::make_mut(items);
            if index >= items.len() {
                items.resize(index + 1, Val::Null);
            }
            items.get_mut(index).ok_or_else(far)
        }
        (value, _) => Err(wrong(value)),
    }
}

/// Deletes the places of sorted paths. All keys of one level go at once, so that none of them moves another.
fn delete(mut value: Val, paths: &[&[Val]]) -> ValR<Val> {
    if paths.is_empty() || matches!(value, Val::Null) {
        return Ok(value);
    }
    let mut gone = Vec::new();
    for group in paths.chunk_by(|one, other| one.first() == other.first()) {
        let Some(key) = group.first().and_then(|path| path.first()) else {
            return Ok(Val::Null);
        };
        if group.iter().any(|path| path.len() == 1) {
            gone.push(key);
            continue;
        }
        let inner = value.clone().index(key)?;
        if matches!(inner, Val::Null) {
            continue;
        }
        let tails: Vec<&[Val]> = group.iter().filter_map(|path| path.get(1..)).collect();
        set(
            &mut value,
            std::slice::from_ref(key),
            delete(inner, &tails)?,
        )?;
    }
    remove(&mut value, &gone)?;
    Ok(value)
}

fn remove(value: &mut Val, gone: &[&Val]) -> Result<(), Failure> {
    if gone.is_empty() {
        return Ok(());
    }
    match value {
        Val::Arr(items) => {
            let mut is_gone = vec![false; items.len()];
            for key in gone {
                let range = match key {
                    Val::Obj(bounds) => part(bounds, items.len())?,
                    Val::Num(number) => match integer(number).and_then(|i| wrapped(i, items.len()))
                    {
                        Some(index) => index..index.saturating_add(1),
                        None => continue,
                    },
                    _ => return Err(Error::index(value.clone(), (*key).clone())),
                };
                for mark in is_gone.get_mut(range).unwrap_or_default() {
                    *mark = true;
                }
            }
            let mut marks = is_gone.into_iter();
            Rc::make_mut(items).retain(|_| !marks.next().unwrap_or(false));
        }
        Val::Obj(entries) => {
            for key in gone {
                let (Val::TStr(_) | Val::BStr(_)) = key else {
                    return Err(Error::index(value.clone(), (*key).clone()));
                };
                Rc::make_mut(entries).shift_remove(*key);
            }
        }
        other => return Err(Error::typ(other.clone(), "array or object")),
    }
    Ok(())
}

fn integer(number: &Num) -> Option<isize> {
    match number {
        Num::Float(float) => whole(float.floor()).and_then(|whole| isize::try_from(whole).ok()),
        other => other.as_isize(),
    }
}

/// An index from the front; none for one before the first item.
fn wrapped(index: isize, length: usize) -> Option<usize> {
    match usize::try_from(index) {
        Ok(index) => Some(index),
        Err(_) => length.checked_sub(index.unsigned_abs()),
    }
}

/// The items that `{start, end}` means.
fn part(bounds: &Map, length: usize) -> Result<Range<usize>, Failure> {
    let bound = |name: &str, default: usize| match bounds.get(&Val::utf8_str(name.to_owned())) {
        None | Some(Val::Null) => Ok(default),
        Some(Val::Num(number)) => {
            let index = integer(number).map(|index| wrapped(index, length).unwrap_or(0));
            Ok(index.unwrap_or(default).min(length))
        }
        Some(other) => Err(Error::typ(other.clone(), "number")),
    };
    let (start, end) = (bound("start", 0)?, bound("end", length)?);
    Ok(start..end.max(start))
}
