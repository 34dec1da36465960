#include "oracle_adapters.h"

#include <string.h>

const nn_lora_selection *oracle_adapters_of(oracle_adapters *room, const ref_sizes *sizes)
{
    const char *text = sizes->adapted;
    int count = 0;
    room->choice = (nn_lora_selection){
        .adapter = {sizes->adapter, sizes->adapter_alpha, REF_ADAPTER_STD, false}};
    if (sizes->adapter == 0)
        return NULL;
    if (!text)
        return &room->choice;
    char *rest = strcpy(room->texts, text);
    for (char *end = strtok_r(rest, ",", &rest); end; end = strtok_r(NULL, ",", &rest))
        room->ends[count++] = end;
    room->choice.targets = room->ends;
    room->choice.n_targets = count;
    return &room->choice;
}
