#pragma once

// Sizes and switches of a context: what is refused, and what llama.cpp is told.

#include "eagle_internal.h"

// throws eagle_invalid for what llama.cpp would abort at, or compute garbage with
void eagle_check_context_params(const eagle_model & model, const eagle_context_params & params);

llama_context_params eagle_to_llama(const eagle_context_params & params);
