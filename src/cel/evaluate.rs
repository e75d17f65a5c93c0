//! The walk through a checked tree with the variables of one review.
//!
//! Pure, any thread; owns the scope of macro variables and the budget of one evaluation. `&&`, `||` and the macros over them
//! absorb errors as CEL demands, and what cannot be known just the same. It never copies the objects it is given.

use std::borrow::Cow;

use super::Variables;
use super::functions;
use super::syntax::{Element, Entry, Expr, Fold, FoldKind, Literal, Mode, Node};
pub(super) use super::value::Fault;
use super::value::{Budget, List, Map, Res, Value, equal, error, unknown};

pub(super) fn evaluate<'a>(expr: &'a Expr, variables: &'a Variables<'a>) -> Result<bool, Fault> {
    let mut walk = Walk {
        variables,
        scope: Vec::new(),
        budget: Budget::full(),
    };
    match walk.value(expr)? {
        Value::Bool(value) => Ok(value),
        other => error(format!("expected a bool, found {}", other.type_name())),
    }
}

/// A conversion of a literal, as the API server computes it at registration.
pub(super) fn convert_literal(function: &str, literal: &Literal) -> Result<(), Fault> {
    let value = literal_value(literal);
    if function == "duration" && !matches!(value, Value::Text(_)) {
        return error("invalid duration argument");
    }
    functions::call(function, &[value], &Budget::full()).map(|_| ())
}

struct Walk<'a> {
    variables: &'a Variables<'a>,
    scope: Vec<(&'a str, Value<'a>)>,
    budget: Budget,
}

impl<'a> Walk<'a> {
    fn value(&mut self, expr: &'a Expr) -> Res<'a> {
        self.budget.spend(1)?;
        match &expr.node {
            Node::Literal(literal) => Ok(literal_value(literal)),
            Node::Name(name) => self.name(name),
            Node::Select {
                operand,
                field,
                mode,
            } => self.select(operand, field, *mode),
            Node::Index {
                operand,
                index,
                optional,
            } => self.index(operand, index, *optional),
            Node::Call {
                function,
                target,
                arguments,
            } => self.call(function, target.as_deref(), arguments),
            Node::List(elements) => self.list(elements),
            Node::Map(entries) => self.map(entries),
            Node::All(operands) => self.logic(operands, false),
            Node::Any(operands) => self.logic(operands, true),
            Node::Choice(parts) => self.choice(parts),
            Node::Fold(fold) => self.fold(fold),
            Node::OptionalMap {
                target,
                variable,
                body,
                flat,
            } => self.optional_map(target, variable, body, *flat),
        }
    }

    fn name(&self, name: &str) -> Res<'a> {
        if let Some((_, value)) = self.scope.iter().rev().find(|(own, _)| *own == name) {
            return Ok(value.clone());
        }
        let json = match name {
            "object" => self.variables.object,
            "oldObject" => self.variables.old_object,
            "request" => self.variables.request,
            // Match conditions are asked before the namespace is read.
            "namespaceObject" => None,
            _ => return unknown(name),
        };
        Ok(json.map_or(Value::Null, Value::from))
    }

    fn select(&mut self, operand: &'a Expr, field: &'a str, mode: Mode) -> Res<'a> {
        let operand = self.value(operand)?;
        let (inner, optional) = match operand {
            Value::Optional(None) if mode == Mode::Test => return Ok(Value::Bool(false)),
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => (inner.as_ref().clone(), true),
            other => (other, false),
        };
        let found = match &inner {
            Value::Map(map) => map.get(&Value::Text(Cow::Borrowed(field))),
            Value::Unknowable(name) => return unknown(*name),
            _ => None,
        };
        match (mode, found) {
            (Mode::Test, found) => Ok(Value::Bool(found.is_some())),
            (Mode::Plain, Some(found)) if !optional => Ok(found),
            (Mode::Plain, None) if !optional => error(format!("no such key: {field}")),
            (_, found) => Ok(found.map_or(Value::Optional(None), Value::some)),
        }
    }

    fn index(&mut self, operand: &'a Expr, index: &'a Expr, optional: bool) -> Res<'a> {
        let operand = self.value(operand)?;
        let index = self.value(index)?;
        let (inner, viral) = match operand {
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => (inner.as_ref().clone(), true),
            other => (other, false),
        };
        let found = match &inner {
            Value::Unknowable(name) => return unknown(*name),
            Value::Map(map) => {
                self.budget.spend(map.len() / 8)?;
                map.get(&index)
                    .ok_or_else(|| format!("no such key: {}", functions::shown(&index)))
            }
            Value::List(list) => match functions::position(&index) {
                None => return error("unsupported index type in list"),
                Some(position) => usize::try_from(position)
                    .ok()
                    .and_then(|position| list.get(position))
                    .ok_or_else(|| format!("index out of bounds: {position}")),
            },
            _ => Err("no such overload".to_owned()),
        };
        match found {
            Ok(found) if optional || viral => Ok(Value::some(found)),
            Ok(found) => Ok(found),
            Err(_) if optional || viral => Ok(Value::Optional(None)),
            Err(words) => error(words),
        }
    }

    fn call(&mut self, function: &str, target: Option<&'a Expr>, rest: &'a [Expr]) -> Res<'a> {
        let mut arguments = Vec::with_capacity(rest.len() + 1);
        if let Some(target) = target {
            let target = self.value(target)?;
            match (function, &target, rest) {
                // Their argument is looked at only if it is needed.
                ("or", Value::Optional(Some(_)), _) => return Ok(target),
                ("orValue", Value::Optional(Some(inner)), _) => return Ok(inner.as_ref().clone()),
                ("or" | "orValue", Value::Optional(None), [alternative]) => {
                    return self.value(alternative);
                }
                _ => arguments.push(target),
            }
        }
        for argument in rest {
            arguments.push(self.value(argument)?);
        }
        let weight: usize = arguments.iter().map(Value::weight).sum();
        self.budget.spend(weight)?;
        let result = functions::call(function, &arguments, &self.budget)?;
        self.budget.spend(result.weight())?;
        Ok(result)
    }

    fn list(&mut self, elements: &'a [Element]) -> Res<'a> {
        let mut list = Vec::with_capacity(elements.len());
        for element in elements {
            let value = self.value(&element.value)?;
            match value {
                value if !element.optional => list.push(value),
                Value::Optional(inner) => list.extend(inner.map(|inner| inner.as_ref().clone())),
                _ => return error("no such overload"),
            }
        }
        Ok(Value::list(list))
    }

    fn map(&mut self, entries: &'a [Entry]) -> Res<'a> {
        let mut map = Vec::with_capacity(entries.len());
        for entry in entries {
            let key = self.value(&entry.key)?;
            let value = self.value(&entry.value)?;
            match value {
                value if !entry.optional => self.insert(&mut map, key, value)?,
                Value::Optional(None) => {}
                Value::Optional(Some(inner)) => {
                    self.insert(&mut map, key, inner.as_ref().clone())?;
                }
                _ => return error("no such overload"),
            }
        }
        Ok(Value::map(map))
    }

    /// A key that comes again replaces its value.
    fn insert(
        &self,
        map: &mut Vec<(Value<'a>, Value<'a>)>,
        key: Value<'a>,
        value: Value<'a>,
    ) -> Result<(), Fault> {
        for (own, slot) in map.iter_mut() {
            if equal(own, &key, &self.budget)? {
                *slot = value;
                return Ok(());
            }
        }
        map.push((key, value));
        Ok(())
    }

    /// `||` if `decisive` is true, `&&` if it is false.
    fn logic(&mut self, operands: &'a [Expr], decisive: bool) -> Res<'a> {
        let mut verdict = Verdict::new(decisive);
        for operand in operands {
            let value = self.value(operand);
            if verdict.is_decided_by(value) {
                break;
            }
        }
        verdict.result()
    }

    fn choice(&mut self, parts: &'a [Expr; 3]) -> Res<'a> {
        let [condition, then, otherwise] = parts;
        match self.value(condition)? {
            Value::Bool(true) => self.value(then),
            Value::Bool(false) => self.value(otherwise),
            _ => error("no such overload"),
        }
    }

    fn optional_map(
        &mut self,
        target: &'a Expr,
        variable: &'a str,
        body: &'a Expr,
        flat: bool,
    ) -> Res<'a> {
        match self.value(target)? {
            Value::Optional(None) => Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => {
                self.scope.push((variable, inner.as_ref().clone()));
                let result = self.value(body);
                self.scope.pop();
                if flat {
                    result
                } else {
                    result.map(Value::some)
                }
            }
            _ => error("no such overload"),
        }
    }

    fn fold(&mut self, fold: &'a Fold) -> Res<'a> {
        let range = self.value(&fold.range)?;
        let rounds: Vec<(Value<'a>, Value<'a>)> = match &range {
            Value::List(list) => indexed(list),
            Value::Map(map) => entries(map, fold.second.is_none()),
            _ => return error("no such overload"),
        };
        self.budget.spend(rounds.len())?;
        let before = self.scope.len();
        let result = self.rounds(fold, rounds);
        self.scope.truncate(before);
        result
    }

    fn rounds(&mut self, fold: &'a Fold, rounds: Vec<(Value<'a>, Value<'a>)>) -> Res<'a> {
        let mut verdict = Verdict::new(fold.kind == FoldKind::Exists);
        let mut count = 0usize;
        let mut list = Vec::new();
        let mut map = Vec::new();
        let before = self.scope.len();
        for (key, element) in rounds {
            self.scope.truncate(before);
            match &fold.second {
                Some(second) => {
                    self.scope.push((&fold.first, key.clone()));
                    self.scope.push((second, element));
                }
                None => self.scope.push((&fold.first, element.clone())),
            }
            if let Some(filter) = &fold.filter
                && !truth(&self.value(filter)?)?
            {
                continue;
            }
            match fold.kind {
                FoldKind::All | FoldKind::Exists => {
                    let value = self.value(&fold.body);
                    if verdict.is_decided_by(value) {
                        break;
                    }
                }
                FoldKind::ExistsOne => count += usize::from(truth(&self.value(&fold.body)?)?),
                FoldKind::List => list.push(self.value(&fold.body)?),
                FoldKind::Filter => {
                    if truth(&self.value(&fold.body)?)? {
                        list.extend(self.scope.last().map(|(_, element)| element.clone()));
                    }
                }
                FoldKind::TransformMap => {
                    let value = self.value(&fold.body)?;
                    self.insert_new(&mut map, key, value)?;
                }
                FoldKind::TransformMapEntry => match self.value(&fold.body)? {
                    Value::Map(inner) => {
                        for (key, value) in inner.entries() {
                            self.insert_new(&mut map, key, value)?;
                        }
                    }
                    _ => return error("no such overload"),
                },
            }
        }
        match fold.kind {
            FoldKind::All | FoldKind::Exists => verdict.result(),
            FoldKind::ExistsOne => Ok(Value::Bool(count == 1)),
            FoldKind::List | FoldKind::Filter => Ok(Value::list(list)),
            FoldKind::TransformMap | FoldKind::TransformMapEntry => Ok(Value::map(map)),
        }
    }

    /// The macros that make maps refuse a key that comes again.
    fn insert_new(
        &self,
        map: &mut Vec<(Value<'a>, Value<'a>)>,
        key: Value<'a>,
        value: Value<'a>,
    ) -> Result<(), Fault> {
        let before = map.len();
        self.insert(map, key, value)?;
        if map.len() == before {
            return error("insert failed: key already exists");
        }
        Ok(())
    }
}

/// What is known of a chain of `&&` or `||` so far: a decisive operand wins over everything, then what cannot be known, since it
/// could be decisive, then an error.
struct Verdict {
    decisive: bool,
    decided: bool,
    fault: Option<Fault>,
}

impl Verdict {
    fn new(decisive: bool) -> Verdict {
        Verdict {
            decisive,
            decided: false,
            fault: None,
        }
    }

    fn is_decided_by(&mut self, value: Res<'_>) -> bool {
        let fault = match value {
            Ok(Value::Bool(value)) => {
                self.decided = value == self.decisive;
                return self.decided;
            }
            Ok(_) => Fault::Error("no such overload".to_owned()),
            Err(fault) => fault,
        };
        if self.fault.is_none()
            || matches!(
                (&self.fault, &fault),
                (Some(Fault::Error(_)), Fault::Unknown(_))
            )
        {
            self.fault = Some(fault);
        }
        false
    }

    fn result<'a>(self) -> Res<'a> {
        match self.fault {
            Some(fault) if !self.decided => Err(fault),
            _ => Ok(Value::Bool(self.decided == self.decisive)),
        }
    }
}

fn truth(value: &Value<'_>) -> Result<bool, Fault> {
    match value {
        Value::Bool(value) => Ok(*value),
        _ => error("no such overload"),
    }
}

fn indexed<'a>(list: &List<'a>) -> Vec<(Value<'a>, Value<'a>)> {
    list.iter()
        .enumerate()
        .map(|(index, element)| (Value::int(index), element))
        .collect()
}

/// A macro with one variable walks through the keys of a map.
fn entries<'a>(map: &Map<'a>, only_keys: bool) -> Vec<(Value<'a>, Value<'a>)> {
    map.entries()
        .into_iter()
        .map(|(key, value)| {
            if only_keys {
                (Value::Null, key)
            } else {
                (key, value)
            }
        })
        .collect()
}

fn literal_value(literal: &Literal) -> Value<'_> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::Text(text) => Value::Text(Cow::Borrowed(text)),
        Literal::Bytes(bytes) => Value::Bytes(Cow::Borrowed(bytes)),
        Literal::Type(name) => Value::Type(name),
    }
}
