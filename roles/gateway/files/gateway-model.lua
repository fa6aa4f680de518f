-- Copyright (c) 2026, the baremetal.inference authors
-- GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
-- SPDX-License-Identifier: GPL-3.0-or-later

-- Finds the model that the body of a request names, as JSON or as a form, and sets txn.model to it. HAProxy's json_query finds
-- nothing in a body that is longer than its buffer, and takes the first of two equal keys; vLLM takes the last.
--
-- txn.model stays unset where the body names none, or not within the part that HAProxy has, and is "?" where no model can have the
-- name. vLLM reads the body itself and refuses models that it does not serve, so a wrong guess here gives nobody another service.

local SPACE = "[ \t\r\n]*"
local QUOTE, COMMA, OPEN_LIST, BACKSLASH, OPEN_OBJECT = 34, 44, 91, 92, 123
-- Of names in the configuration; an escape has six characters at most.
local LONGEST, ESCAPED = 256, 6

-- The position of the quote that ends the string whose first character is at ``at``, nil if it is not there. It is the first one
-- with an even number of backslashes before it.
local function closing_quote(body, at)
    local found = body:find('"', at, true)
    while found do
        local first = found
        while first > at and body:byte(first - 1) == BACKSLASH do
            first = first - 1
        end
        if (found - first) % 2 == 0 then
            return found
        end
        found = body:find('"', found + 1, true)
    end
    return nil
end

-- The position behind a value of an object: of the comma or brace that follows, nil if it is not there.
local function value_end(body, at)
    local depth = 0
    while true do
        at = body:find(depth == 0 and '["%[%]{},]' or '["%[%]{}]', at)
        local letter = at and body:byte(at)
        if letter == QUOTE then
            at = closing_quote(body, at + 1)
        elseif letter == OPEN_LIST or letter == OPEN_OBJECT then
            depth = depth + 1
        elseif depth == 0 then
            return at
        else
            depth = depth - 1
        end
        if not at then
            return nil
        end
        at = at + 1
    end
end

-- The text of a JSON string without its escapes; characters outside ASCII, and those that no name has, become "?".
local function unescaped(text)
    local parts, at = {}, 1
    while true do
        local found = text:find("\\", at, true)
        parts[#parts + 1] = text:sub(at, (found or 0) - 1)
        if not found then
            return table.concat(parts)
        end
        local code = text:match("^u(%x%x%x%x)", found + 1)
        local letter = text:match('^["/\\]', found + 1)
        local number = code and tonumber(code, 16)
        parts[#parts + 1] = letter or (number and number < 128 and string.char(number)) or "?"
        at = found + (code and 6 or 2)
    end
end

-- A name as models have them, "?" for any other text, nil for an empty one: vLLM then takes its own model.
local function name_of(text)
    if text == "" then
        return nil
    end
    local fits = #text <= LONGEST and text:find("^%w[%w._:/@+-]*$")
    return fits and text or "?"
end

-- The last "model" of the outermost object.
local function model_in_json(body)
    local at = body:match("^\239?\187?\191?" .. SPACE .. "{()")
    local model
    while at do
        local key = body:match("^" .. SPACE .. '"()', at)
        local key_end = key and closing_quote(body, key)
        local value = key_end and body:match("^" .. SPACE .. ":" .. SPACE .. "()", key_end + 1)
        local after = value and value_end(body, value)
        if not value then
            return model
        end
        if key_end - key <= ESCAPED * #"model" and unescaped(body:sub(key, key_end - 1)) == "model" then
            local stop = body:byte(value) == QUOTE and closing_quote(body, value + 1)
            if stop and stop - value > ESCAPED * LONGEST then
                model = "?"
            elseif stop then
                model = name_of(unescaped(body:sub(value + 1, stop - 1)))
            elseif after then
                model = nil
            end
        end
        at = after and body:byte(after) == COMMA and after + 1
    end
    return model
end

-- The last field "model" of a form, as clients send sound.
local function model_in_form(body, boundary)
    local line, model = "--" .. boundary, nil
    local _, at = body:find(line, 1, true)
    while at do
        local head_end, value = body:match("^\r\n.-()\r\n\r\n()", at + 1)
        local stop, next_at = body:find("\r\n" .. line, value or at, true)
        if head_end and stop then
            local head = body:sub(at + 1, head_end - 1):lower() .. "\r\n"
            if head:find('\r\ncontent%-disposition:[^\r\n]*[; ]name="?model"?[;\r ]') and stop - value <= LONGEST then
                model = name_of(body:sub(value, stop - 1))
            end
        end
        at = next_at
    end
    return model
end

core.register_action("model", { "http-req" }, function(txn)
    local body = txn.sf:req_body()
    local kind = txn.sf:req_fhdr("content-type")
    local boundary = kind:lower():find("^multipart/form%-data") and kind:match('[Bb]oundary="?([^";]+)')
    local model
    if boundary then
        model = model_in_form(body, boundary)
    else
        model = model_in_json(body)
    end
    if model then
        txn:set_var("txn.model", model)
    end
end)
